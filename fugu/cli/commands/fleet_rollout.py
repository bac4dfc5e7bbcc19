"""`fugu fleet rollout`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.commands.arguments import positive
from fugu.cli.commands.fleet_options import NoteOption, RegistryOption, dry_run_of, now_us, user
from fugu.cli.commands.options import JsonOption, command_group
from fugu.cli.errors import CommandError, CommandLineError
from fugu.cli.view.fleet import read_document
from fugu.cli.view.rollout import rollout_document, show_plan, show_rollout, watch
from fugu.cli.view.terminal import answer
from gateway.fleet import Registry, RolloutPlan, Rollouts, Stage, share
from gateway.fleet import share as read_share
from gateway.fleet.documents import check_new, document_in, enter, refuse_other_ticks, target_of
from gateway.fleet.plan import stages_of
from gateway.fleet.signing import Signed

__all__ = ["app"]

app = command_group("A document in stages, to some devices first.")
NumberArgument = Annotated[
    int | None, typer.Argument(metavar="[NUMBER]", help="Of the rollout (default: the one under way).")
]
_STAGES = ("5%", "25%", "100%")


@app.command("start")
def start(
    registry: RegistryOption,
    document: Annotated[
        Path | None, typer.Argument(metavar="[DOCUMENT]", help="What 'fugu fleet sign' has written.")
    ] = None,
    version: Annotated[int | None, typer.Option(metavar="N", help="A document that the registry has, instead.")] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With DOCUMENT: the fleet's root, to check it with.")
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            help="SHARE or group:NAME, then ,success=SHARE and ,gate as you like; again for the next stage; "
            "the last must be 100% (default: 5%, 25%, 100%).",
        ),
    ] = None,
    success: Annotated[
        str, typer.Option(metavar="SHARE", help="Of a stage's devices have to accept before the next one begins.")
    ] = "90%",
    error: Annotated[
        str, typer.Option(metavar="SHARE", help="Of a stage's devices refuse, fail or keep silent: it stops.")
    ] = "5%",
    pace: Annotated[int, typer.Option(metavar="N", help="Devices a minute that get the document.")] = 100,
    patience: Annotated[int, typer.Option(metavar="SECONDS", help="Time that a device has to answer.")] = 600,
    group: Annotated[
        list[str] | None, typer.Option(help="Only devices of this group; again for more (default: all).")
    ] = None,
    share: Annotated[str, typer.Option(metavar="SHARE", help="Only this share of the devices.")] = "100%",
    seed: Annotated[str, typer.Option(help="Another seed chooses other devices to be first.")] = "",
    note: NoteOption = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the stages and what would change; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Begin to let devices have a document, stage by stage.

    The gateway goes on with it, also after it was restarted.

    \b
    examples:
      fugu fleet rollout start all-7.envelope --registry home-fleet.db --root keys/root.envelope
      fugu fleet rollout start --version 7 --registry home-fleet.db --stage group:canaries --stage 10%,success=95% \\
          --stage 100%,gate --error 3% --pace 60 --seed spring
    """
    if (document is None) == (version is None) or (document is None) != (root is None):
        raise CommandLineError("name a DOCUMENT with --root, or --version (try 'fugu fleet rollout start --help')")
    signed = None if document is None or root is None else read_document(document, root)
    stages = tuple(_stage(text, success) for text in stage or _STAGES)
    plan = RolloutPlan(
        version=signed.document.version if signed else version or 0,
        stages=stages,
        error=read_share(error),
        pace=pace,
        patience_seconds=patience,
        groups=tuple(group or ()),
        share=read_share(share),
        seed=seed,
    )
    with closing(Registry(registry)) as opened:
        if dry_run:
            _dry_run(opened, plan, signed, as_json)
            return
        rollouts = Rollouts(opened)
        with opened.transaction():
            refuse_other_ticks(opened, signed.document if signed else document_in(opened, plan.version))
            if signed is not None:
                enter(opened, signed, note, who=user(), time_us=now_us())
            number = rollouts.draft(plan, who=user(), time_us=now_us())
            rollouts.start(number, who=user(), time_us=now_us())
        _show(opened, number, as_json)


@app.command("show")
def show(
    registry: RegistryOption,
    number: NumberArgument = None,
    live: Annotated[bool, typer.Option("--watch", help="Until it has ended; exit code 1 unless completed.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="With --watch: how often to look.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show a rollout: its stages, and how their devices stand.

    The newest if none is named.

    \b
    examples:
      fugu fleet rollout show --registry home-fleet.db
      fugu fleet rollout show 3 --registry home-fleet.db --watch
    """
    if live and as_json:
        raise CommandLineError("--watch and --json do not go together")
    with closing(Registry(registry)) as opened:
        if number is None:
            numbers = Rollouts(opened).numbers()
            if not numbers:
                raise CommandError(f"there was no rollout in fleet {opened.fleet} yet")
            number = numbers[-1]
        if not live:
            _show(opened, number, as_json)
        elif (phase := watch(opened, number, positive(interval, "interval"))) != "completed":
            raise CommandError(f"rollout {number} was {phase}")


def _operation(what: str, about: str) -> None:
    """Add a command that does something to a rollout."""
    example = f"\n\n\b\nexamples:\n  fugu fleet rollout {what} --registry home-fleet.db"

    @app.command(what, help=about + example)
    def _operate(registry: RegistryOption, number: NumberArgument = None) -> None:
        with closing(Registry(registry)) as opened:
            chosen = _under_way(opened) if number is None else number
            getattr(Rollouts(opened), what)(chosen, who=user(), time_us=now_us())
            show_rollout(opened, chosen)


_operation("approve", "Open the gate that a rollout waits at.")
_operation("pause", "Let nothing happen until it is resumed.\n\nDevices that were offered the document keep it.")
_operation("resume", "Go on with a rollout that is paused.")
_operation("abort", "End a rollout.\n\nDevices stay where they are, and the way back is said.")


def _under_way(registry: Registry) -> int:
    """The one rollout that is under way."""
    found = Rollouts(registry).active()
    if not found:
        raise CommandError(f"no rollout is under way in fleet {registry.fleet}")
    if len(found) > 1:
        raise CommandError(f"rollouts {', '.join(map(str, found))} are under way: name one")
    return found[0]


def _stage(text: str, success: str) -> Stage:
    """Read `SHARE` or `group:NAME`, then `,success=SHARE` and `,gate`."""
    reach, *options = text.split(",")
    gate = False
    for option in options:
        if option == "gate":
            gate = True
        elif option.startswith("success="):
            success = option.removeprefix("success=")
        else:
            raise CommandLineError(f"a stage is SHARE or group:NAME, then ,success=SHARE and ,gate; got {text[:60]!r}")
    if reach.startswith("group:"):
        return Stage(group=reach.removeprefix("group:"), success=share(success), gate=gate)
    return Stage(share=share(reach), success=share(success), gate=gate)


def _dry_run(registry: Registry, plan: RolloutPlan, signed: Signed | None, as_json: bool) -> None:
    """The stages as they would be, and what would change on the devices."""
    if signed is not None:
        check_new(registry, signed)
        document = signed.document
    else:
        document = document_in(registry, plan.version)
    groups = {device.name: device.groups for device in registry.devices()}
    stages = stages_of(plan, groups, target_of(document.to))
    if not as_json:
        show_plan(plan, stages)
    dry_run_of(registry, document, as_json, {name for stage in stages for name in stage}, stages=stages)


def _show(registry: Registry, number: int, as_json: bool) -> None:
    answer(as_json, lambda: rollout_document(registry, number), lambda: show_rollout(registry, number))
