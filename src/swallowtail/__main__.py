"""python -m swallowtail."""

import sys

from swallowtail.cli.commands import main

sys.exit(main())
