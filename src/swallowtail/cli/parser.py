"""A parser whose messages say what may have been meant."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """As argparse's; a mistake is answered by the command it was made in, with the nearest word there is."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """No command hands words on that it does not know."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(unknown[0], options)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Add the nearest of the choices, where there are some."""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        super().error(message + (_meant(choice[1], re.findall(r"[\w-]+", choice[2])) if choice else ""))


def _meant(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word.partition("=")[0], words, n=1)
    return f"; did you mean {near[0]}?" if near else ""
