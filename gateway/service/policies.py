"""The policies of a fleet, by device, stream and version: what may arrive, and the model to estimate with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

from contract.errors import FuguError, GuaranteeError, PolicyError
from contract.frames import ABSENT
from contract.policy import Policy
from gateway.service.estimation import Model, model_of

__all__ = ["Catalogue", "Known", "UnknownDeviceError", "UnknownPolicyVersionError", "UnknownStreamError"]


class UnknownDeviceError(FuguError):
    """No policy names the device."""

    reason = "unknown_device"


class UnknownStreamError(FuguError):
    """No policy of the device names the stream."""

    reason = "unknown_stream"


class UnknownPolicyVersionError(FuguError):
    """No policy of the stream has the version."""

    reason = "unknown_policy_version"


class Known(NamedTuple):
    """A policy, the bytes that its frames may hold, and its model."""

    policy: Policy
    allowed: bytes
    model: Model


class Catalogue:
    """Policies that have passed their checks.

    Args:
        fleet: the fleet that every policy must be for.
    """

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet
        self._devices: dict[str, dict[str, dict[int, Known]]] = {}
        self._retired: dict[tuple[str, str, int], Known] = {}
        self._verified: set[object] = set()

    @classmethod
    def load(cls, directory: Path, fleet: str) -> Self:
        """Read every `*.json` file of a directory.

        Raises:
            PolicyError: one line with the name of the first file that is wrong.
            GuaranteeError: one line with the name of the first file whose guarantee is false.
        """
        catalogue = cls(fleet)
        try:
            files = sorted(path for path in directory.iterdir() if path.suffix == ".json")
        except OSError as error:
            raise PolicyError(f"cannot read the policies directory: {error.strerror}") from None
        if not files:
            raise PolicyError("the policies directory holds no .json file")
        for path in files:
            try:
                catalogue.add(Policy.from_json(path.read_bytes()))
            except (PolicyError, GuaranteeError) as error:
                raise type(error)(f"{path.name}: {error}") from None
            except OSError as error:
                raise PolicyError(f"{path.name}: {error.strerror}") from None
        return catalogue

    def add(self, policy: Policy) -> None:
        """Accept frames under a policy.

        Raises:
            PolicyError: if it is for another fleet, or contradicts one with the same version.
            GuaranteeError: if its own guarantee is false.
        """
        if policy.fleet != self.fleet:
            raise PolicyError(f"policy is for fleet {policy.fleet}, this gateway serves {self.fleet}")
        claim = (policy.chains, policy.table, policy.guarantee, policy.windows, policy.windows_guarantee)
        if claim not in self._verified:
            policy.verify(float("inf"))
            self._verified.add(claim)
        versions = self._devices.setdefault(policy.device, {}).setdefault(policy.stream, {})
        if policy.version in versions and versions[policy.version].policy != policy:
            raise PolicyError(f"another policy of {policy.device}/{policy.stream} has version {policy.version} too")
        versions[policy.version] = _known(policy)

    def retire(self, documents: Iterable[str]) -> None:
        """Remember policies that stored frames were made under, for their models; no new frames may come under them.

        Raises:
            PolicyError: if one contradicts a loaded policy of the same version.
        """
        for document in documents:
            policy = Policy.from_json(document)
            key = (policy.device, policy.stream, policy.version)
            loaded = self._devices.get(policy.device, {}).get(policy.stream, {}).get(policy.version)
            if loaded is None:
                self._retired[key] = _known(policy)
            elif loaded.policy != policy:
                raise PolicyError(
                    f"version {policy.version} of {policy.device}/{policy.stream} is not the policy that the stored "
                    "frames were made under; give the changed policy a new version"
                )

    def find(self, device: str, stream: str, version: int) -> Known:
        """The policy that a frame names.

        Raises:
            UnknownDeviceError, UnknownStreamError, UnknownPolicyVersionError: the first part that is not known.
        """
        if (streams := self._devices.get(device)) is None:
            raise UnknownDeviceError(f"no policy for device {device}")
        if (versions := streams.get(stream)) is None:
            raise UnknownStreamError(f"no policy for stream {device}/{stream}")
        if (known := versions.get(version)) is None:
            raise UnknownPolicyVersionError(f"no policy version {version} of {device}/{stream}")
        return known

    def model(self, device: str, stream: str, version: int) -> Model:
        """The model of a policy in force or retired."""
        retired = self._retired.get((device, stream, version))
        return (retired or self.find(device, stream, version)).model

    def policy(self, device: str, stream: str, version: int) -> Policy:
        """A policy in force or retired."""
        retired = self._retired.get((device, stream, version))
        return (retired or self.find(device, stream, version)).policy

    def policies(self, device: str, stream: str) -> list[Policy]:
        """All policies of a stream, retired ones first, then in the order of their versions; none if there are none."""
        retired = [known for key, known in sorted(self._retired.items()) if key[:2] == (device, stream)]
        loaded = sorted(self._devices.get(device, {}).get(stream, {}).items())
        return [known.policy for known in (*retired, *(known for _, known in loaded))]

    def devices(self, stream: str) -> tuple[str, ...]:
        """The devices that have a stream, sorted."""
        return tuple(sorted(device for device, streams in self._devices.items() if stream in streams))

    def streams(self, device: str) -> tuple[str, ...]:
        """The streams of a device, sorted; none if it is not known."""
        return tuple(sorted(self._devices.get(device, ())))


def _known(policy: Policy) -> Known:
    return Known(policy, bytes([*range(policy.table.symbols), ABSENT]), model_of(policy))
