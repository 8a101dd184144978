"""``python -m recorder``: the same command as ``recorder``."""

import sys

from recorder.cli.app import main

sys.exit(main())
