"""Paths outside the workspace that a session named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stream.observation import observe
from recorder.stream.outside import outside_paths, shell_words
from tests.stream.streams import call, init


def outside(*calls: bytes) -> tuple[str, ...] | None:
    return outside_paths(observe([init(), *calls]), "/workspace")


def bash(command: str) -> bytes:
    return call("Bash", {"command": command})


def test_the_reference_example() -> None:
    """N03"""
    named = outside(
        call("Read", {"file_path": "/out/secret.md"}),
        bash("cat /out/secret.md ../rel; find / -name x 2>/dev/null; ls /home /mnt"),
        call("Grep", {"pattern": "x", "path": "/workspace/docs"}),
    )
    assert named == ("/out/secret.md", "/home", "/mnt")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("echo x > /tmp/x; cat /opt/headwater-egress", ("/tmp/x", "/opt/headwater-egress")),
        ("ls /usr/bin /etc/passwd /proc/1 /dev/null /workspace/a", ()),
        ("cat '/home/a b' \"/home/c\"d /home/\\ e", ("/home/a b", "/home/cd", "/home/ e")),
        ("ls /workspace/../home/u /workspacer", ("/home/u", "/workspacer")),
        ("cat <<EOF > /tmp/o\n/home/in/body\nEOF\nls /srv", ("/tmp/o", "/srv")),
        ("cat <<-'END'\n/home/body\n\tEND\nls /srv", ("/srv",)),
        ("X=/home/u make --root=/srv/r", ("/home/u", "/srv/r")),
        ("ls /home/*/x $HOME/y /var/$X/z", ("/home", "/var")),
        ("ls # /home/comment\nls /srv", ("/srv",)),
        ("(ls /a)|wc&&cat</b;$(cat /c)`ls /d`", ("/a", "/b", "/c", "/d")),
        ("curl https://example.com/x", ()),
        ("ls //home///u/", ("/home/u",)),
    ],
    ids=["N05", "bound", "quotes", "climbing", "heredoc", "heredoc-tabs", "assigned", "expanded",
         "comment", "operators", "url", "normal"],
)  # fmt: skip
def test_shell_words_of_a_command(command: str, named: tuple[str, ...]) -> None:
    assert outside(bash(command)) == named


def test_a_stream_that_was_not_read_whole_is_not_counted() -> None:
    """N08"""
    observation = observe([init(), bash("ls /home"), b"garbage\n"])
    assert outside_paths(observation, "/workspace") is None
    assert outside(bash("ls")) == ()


@given(st.text(st.sampled_from("ab/ '\"\\\n<;#$-=EOF"), max_size=30))
def test_any_command_gives_words_without_separators_added(command: str) -> None:
    assert all(isinstance(word, str) for word in shell_words(command))


@given(st.lists(st.text(st.characters(exclude_characters="'\0"), max_size=8), max_size=5))
def test_quoted_words_come_back_as_they_are(words: list[str]) -> None:
    command = " ".join(f"'{word}'" for word in words if "<<" not in word)
    assert list(shell_words(command)) == [word for word in words if "<<" not in word]
