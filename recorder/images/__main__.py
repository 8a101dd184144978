"""``python -m recorder.images [NAME...]``: build what is missing or out of date, with progress."""

from __future__ import annotations

import sys
import time

from recorder.engine.connect import connect
from recorder.images.build import IMAGE_NAMES, build_images
from recorder.refusal import ExitCode, Refusal


def main(names: list[str]) -> int:
    started = time.monotonic()

    def show(line: str) -> None:
        print(f"images: {time.monotonic() - started:5.1f} s  {line}", flush=True)

    try:
        built = build_images(connect(), names or IMAGE_NAMES, show)
    except Refusal as refusal:
        for reason in refusal.reasons:
            print(f"recorder: {reason}", file=sys.stderr)
        return refusal.code
    for image in built:
        if not image.skipped:
            show(f"{image.tag}: {image.size_bytes / 1e6:.0f} MB in {image.seconds:.1f} s")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
