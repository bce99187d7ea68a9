"""python -m swallowtail."""

import sys

from swallowtail.cli import main

sys.exit(main())
