"""``python -m recorder.engine start|stop|status``: what set-up calls before there is a command.

``status`` prints ``running`` or ``stopped`` of our engine, ``start`` the address of the engine that
is used (the user's own, where one is named: nothing is started then).
"""

from __future__ import annotations

import sys

from recorder.engine import connect, rootless
from recorder.refusal import ExitCode, Refusal


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["start"]:
                chosen = connect.user_choice()
                if chosen is None:
                    print(rootless.start().status.docker_host)
                else:
                    connect.connect(chosen.docker_host).close()
                    print(chosen.docker_host)
            case ["stop"]:
                print("stopped" if rootless.stop() else "was not running")
            case ["status"]:
                print("running" if rootless.status().running else "stopped")
            case _:
                print("usage: python -m recorder.engine start|stop|status", file=sys.stderr)
                return ExitCode.USAGE
    except Refusal as refusal:
        for reason in refusal.reasons:
            print(f"recorder: {reason}", file=sys.stderr)
        return refusal.code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
