"""`helio completion SHELL`: print a script that completes commands and options in bash, zsh or fish.

The script contains all words, so that a completion starts no Python.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterator

from heliograph.cli.output import block, json_line


def completion(options: Namespace) -> int:
    from heliograph.cli.commands import command_parser

    script = script_of(command_parser(), options.shell)
    if options.json:
        json_line("completion", {"shell": options.shell, "script": script}, is_input=True)
    else:
        block(script)
    return 0


def script_of(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell. zsh runs that of bash."""
    words = dict(_words(parser, ()))
    if shell == "fish":
        return "\n".join(_fish(words))
    start = ["autoload -Uz bashcompinit && bashcompinit"] if shell == "zsh" else []
    return "\n".join((*start, *_bash(words)))


def _words(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[list[str], list[str]]]]:
    """Yield for each command, like ("run", "list"), its subcommands and its options."""
    commands: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands.update(action.choices)
    found = sorted(
        {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    )
    yield path, (list(commands), found)
    for name, child in commands.items():
        yield from _words(child, (*path, name))


def _bash(words: dict[tuple[str, ...], tuple[list[str], list[str]]]) -> Iterator[str]:
    yield "_helio() {"
    yield '  local word path="" known=""'
    yield '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '    case " $(_helio_words "$path") " in *" $word "*) case "$word" in -*) ;; *) path="${path:+$path }$word";; esac;; esac'
    yield "  done"
    yield '  COMPREPLY=($(compgen -W "$(_helio_words "$path")" -- "${COMP_WORDS[COMP_CWORD]}"))'
    yield '  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))'
    yield "}"
    yield "_helio_words() {"
    yield '  case "$1" in'
    for path, (commands, options) in words.items():
        yield f'    "{" ".join(path)}") echo "{" ".join((*commands, *options))}";;'
    yield "  esac"
    yield "}"
    yield "complete -F _helio helio heliograph"


def _fish(words: dict[tuple[str, ...], tuple[list[str], list[str]]]) -> Iterator[str]:
    for path, (commands, options) in words.items():
        seen = [f"__fish_seen_subcommand_from {name}" for name in path]
        unseen = [f"not __fish_seen_subcommand_from {' '.join(commands)}"] if commands else []
        condition = f" -n '{'; and '.join((*seen, *unseen))}'" if seen or unseen else ""
        if commands:
            yield f"complete -c helio -f{condition} -a '{' '.join(commands)}'"
        for option in options:
            yield f"complete -c helio{condition} -l {option.removeprefix('--')}"
