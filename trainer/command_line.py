"""The command line: `read_settings` parses it, --help lists the settings, an unknown flag gets a suggestion.

defaults.py fills in the values that the user did not set, and settings_checks.py refuses settings that cannot work.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
import sys
import textwrap
from dataclasses import Field, fields
from typing import Any, NoReturn

from transformers import HfArgumentParser

import brorl
from trainer.defaults import resolve
from trainer.exits import Refusal
from trainer.settings import TINY, Config, formatted, rule
from trainer.settings_checks import check_settings, check_size

PAPER_VALUES = [{name: x.value for name, x in recipe.items()} for recipe in brorl.RECIPES.values()]
TINY_VALUES = [
    {name: x["value"] for name, x in recipe.items()}
    for recipe in json.loads((TINY / "policy" / "recipe.json").read_text()).values()
]


class Parser(HfArgumentParser):
    """Raise a Refusal with the name of the setting where argparse would print its usage and exit."""

    @staticmethod
    def _parse_dataclass_field(parser: Any, field: Field) -> None:
        known = copy.copy(field)  # argparse would refuse the rules
        known.metadata = {name: x for name, x in field.metadata.items() if name != "rules"}  # type: ignore[assignment]
        HfArgumentParser._parse_dataclass_field(parser, known)

    def error(self, message: str) -> NoReturn:
        # argparse writes "argument --max_steps/--max-steps: ...": one name is enough
        message = re.sub(r"/--[\w-]+", "", message.removeprefix("argument "))
        if switch := re.match(r"(--\w+): Truthy value expected: got (.*) but", message):
            name = f": --resume --name {switch[2]}" if switch[1] == "--resume" else ""
            message = f"{switch[1]} takes no value, and got {switch[2]}{name}"
        raise Refusal(message)


def read_settings(
    about: str, argv: list[str] | None = None, any_size: bool = False
) -> tuple[Config, dict[str, str]]:  # fmt: skip
    """Return the settings with every value filled in, and the origin of each recipe value. Raises Refusal.

    any_size: for programs that train nothing. Others must name the size of a step of their own model.
    """
    argv = sys.argv[1:] if argv is None else argv
    if "--help" in argv or "-h" in argv:
        print(help_text(about))
        sys.exit()
    parser = Parser(Config, allow_abbrev=False, add_help=False)  # type: ignore[arg-type]
    config, unknown = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if unknown:
        raise Refusal(unknown_settings(unknown))
    given = {flag.split("=")[0].removeprefix("--").replace("-", "_") for flag in argv if flag.startswith("--")}
    origins = resolve(config, given)
    if not (any_size or config.eval_only or config.resume):
        check_size(config, given)
    check_settings(config)
    return config, origins


def help_text(about: str) -> str:
    """Return the text of --help: a line for each setting, with its default or the defaults of the two recipes."""
    intro = f"{about} In brackets: the default; if there are two, brorl's and prorl's."
    lines = ["usage: python train.py [--SETTING VALUE ...]", "", *textwrap.wrap(intro, 80)]
    for f in fields(Config):
        if group := f.metadata["rules"].get("group"):
            lines += ["", f"{group}:"]
        left = f"  --{f.name} ".ljust(28)
        lines += textwrap.wrap(f.metadata["help"] + default_of(f), 80, initial_indent=left, subsequent_indent=" " * 28)
    return "\n".join(lines)


def default_of(f: Field) -> str:
    """Return a setting's default in brackets. "" for a setting whose help text names it, or that has none.

    The tiny policy has a recipe.json: its values follow those of the paper, if they differ.
    """
    of_the_paper, own = (
        ", ".join(dict.fromkeys(formatted(recipe[f.name]) for recipe in recipes if f.name in recipe))
        for recipes in (PAPER_VALUES, TINY_VALUES)
    )
    if f.default is None:
        differs = f"; tiny/policy: {own}" if own not in ("", of_the_paper) else ""
        return f" [{of_the_paper}{differs}]" if of_the_paper else ""
    return f" [{formatted(f.default)}]" if type(f.default) in (int, float) else ""


def unknown_settings(unknown: list[str]) -> str:
    """Say for each unknown word which setting was probably meant: one with this synonym, beginning or similar name."""
    flags = [word for word in unknown if word.startswith("-")] or unknown
    meant = {flag: nearest_setting(flag) for flag in flags}
    hints = [f"did you mean --{name} for {flag}?" for flag, name in meant.items() if name]
    return f"unknown setting {' '.join(unknown)}: " + (" ".join(hints) or "python train.py --help lists the settings")


def nearest_setting(flag: str) -> str:
    """Return the setting that is most like this flag; "" if none is."""
    word, names = flag.lstrip("-").split("=")[0].replace("-", "_"), [f.name for f in fields(Config)]
    near = [
        *(name for name, synonyms in rule("also").items() if word in synonyms),
        *(name for name in names if name.startswith(word)),
        *difflib.get_close_matches(word, names, 1),
        *(name for name in names if word.startswith(name)),
    ]
    return near[0] if near else ""
