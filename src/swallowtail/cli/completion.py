"""swallowtail completion: a script that teaches a shell the commands, their options and choices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

BASH = """\
# swallowtail: complete commands, options and choices. Put it into ~/.bashrc:  eval "$(swallowtail completion bash)"
_swallowtail() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}} $before" in
{choices}
        esac
        if [ -z "$words" ]; then
            case "${{COMP_WORDS[1]}}" in
{options}
            esac
            [ "${{word#-}}" = "$word" ] && words=""
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [ -z "$words" ] && COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _swallowtail swallowtail
"""
ZSH = """\
# swallowtail: complete commands, options and choices. Put it into ~/.zshrc:  eval "$(swallowtail completion zsh)"
autoload -U +X bashcompinit && bashcompinit
"""


def add_command(commands: Any, parser: argparse.ArgumentParser) -> None:
    """Add the command to the parser."""
    completion = commands.add_parser(
        "completion", help="print a script for the shell", description='eval "$(swallowtail completion bash)"'
    )
    completion.add_argument("shell", choices=("bash", "zsh"))
    completion.set_defaults(run=lambda options: print(script(parser, options.shell), end=""))


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for "bash" or "zsh"."""
    subparsers = dict(_subparsers(parser))
    choices, options = [], []
    for name, command in subparsers.items():
        words: list[str] = []
        for action in command._actions:
            words += action.option_strings
            if action.choices and action.option_strings:
                listing = " ".join(map(str, action.choices))
                cases = "|".join(f'"{name} {option}"' for option in action.option_strings)
                choices.append(f'            {cases}) words="{listing}";;')
            elif action.choices:
                choices.append(f'            "{name} {name}") words="{" ".join(map(str, action.choices))}";;')
        options.append(f'                {name}) words="{" ".join(words)}";;')
    text = BASH.format(commands=" ".join(subparsers), choices="\n".join(choices), options="\n".join(options))
    return text if shell == "bash" else ZSH + text.partition("\n")[2]


def _subparsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()
