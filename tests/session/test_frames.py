"""The attach protocol: whatever the split, the streams come out byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.session.frames import Demultiplexer, FrameError, Stream

Pieces = list[tuple[Stream, bytes]]

streams: st.SearchStrategy[Stream] = st.sampled_from((1, 2))
frames = st.lists(st.tuples(streams, st.binary(max_size=300)), max_size=12)


def encode(pieces: Pieces) -> bytes:
    return b"".join(
        bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for stream, data in pieces
    )


def joined(pieces: Pieces, stream: Stream) -> bytes:
    return b"".join(data for number, data in pieces if number == stream)


@given(frames, st.lists(st.integers(1, 40)))
def test_any_split_gives_each_stream_byte_for_byte(pieces: Pieces, cuts: list[int]) -> None:
    wire = encode(pieces)
    demultiplexer = Demultiplexer()
    got: Pieces = []
    at = 0
    for size in [*cuts, len(wire)]:
        got += demultiplexer.feed(wire[at : at + size])
        at += size
    assert joined(got, 1) == joined(pieces, 1)
    assert joined(got, 2) == joined(pieces, 2)
    assert demultiplexer.between_frames


@given(frames.filter(lambda pieces: any(data for _, data in pieces)), st.data())
def test_an_end_inside_a_frame_is_seen(pieces: Pieces, data: st.DataObject) -> None:
    wire = encode(pieces)
    last = len(encode(pieces[-1:]))
    cut = data.draw(st.integers(1, last - 1))
    demultiplexer = Demultiplexer()
    list(demultiplexer.feed(wire[:-cut]))
    assert not demultiplexer.between_frames


def test_a_frame_of_many_megabytes_is_passed_on_in_the_pieces_it_came_in() -> None:
    demultiplexer = Demultiplexer()
    list(demultiplexer.feed(bytes([1, 0, 0, 0]) + (1 << 28).to_bytes(4, "big")))
    assert list(demultiplexer.feed(b"x" * 1000)) == [(1, b"x" * 1000)]


@pytest.mark.parametrize("head", [b"\x03\0\0\0\0\0\0\1", b'{"type"', b"\x01\0\1\0\0\0\0\1"])
def test_bytes_that_are_no_frames_are_a_fault(head: bytes) -> None:
    with pytest.raises(FrameError):
        list(Demultiplexer().feed(head.ljust(8, b" ")))
