"""The work of `fugu plan auto --homes N`: a group of homes with one noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fugu.library.plans import whose_of
from fugu.library.report import NOTHING, Line, Result
from fugu.library.streets import read_group, street_of
from fugu_cli.commands.auto_plan import question_asked, reading_asked
from fugu_cli.commands.plan_options import AutoOptions, GroupOptions
from fugu_cli.errors import CommandLineError
from fugu_cli.view.terminal import working

__all__ = ["plan_homes"]

_NEXT = (
    "The helper puts {file} into helper.toml and signs it: fugu helper group helper.toml street > street.json. Then "
    "the same command with --group street.json writes the policies of the homes."
)


def plan_homes(
    files: Sequence[Path], options: AutoOptions, group: GroupOptions, *, output: Path | None, force: bool
) -> Result:
    """Plan a group, and write what its helper or its homes need.

    Raises:
        FuguError: something cannot be read, or there is no such group.
        OSError: a file cannot be read or written.
    """
    if group.homes is None:
        raise CommandLineError("--honest, --colluding and --group are of a group of homes: give --homes")
    if options.devices > 1 or options.blocks or options.want not in (None, "share"):
        raise CommandLineError("a group counts ticks in some states: --homes goes without --devices, --blocks, --want")
    question = question_asked(options)
    with working("planning", measured=True) as progress:
        street = street_of(
            files,
            question,
            whose_of(options.fleet, options.device, options.stream, options.epoch),
            reading_asked(options, question),
            group.homes,
            group=None if group.group is None else read_group(group.group),
            honest=group.honest,
            colluding=group.colluding,
            progress=progress,
        )
    written = () if output is None else street.save(output, force=force)
    lines = []
    if written:
        last = f"{len(written)} files in {written[0].parent}"
        lines.append(f"written: {written[0] if len(written) == 1 else last}")
        if group.group is None:
            lines.append(_NEXT.format(file=written[0]))
    return Result(street.document(), [*street.report, *map(Line, lines)], 0 if street.useful else NOTHING)
