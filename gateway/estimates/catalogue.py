"""The policies of a fleet, by device, stream and version: the frames that may arrive, and the models of estimates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from fugu.contract.errors import GuaranteeError, PolicyError, Reason, RefusedError, cause
from fugu.contract.frames import sequence_name
from fugu.contract.groups import GroupDocument
from fugu.contract.history import History, RelatedStream, related_names
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from gateway.estimates.beliefs import SymbolModel

if TYPE_CHECKING:
    from gateway.estimates.points import MeasureModel

__all__ = ["Catalogue"]


AnyModel: TypeAlias = "SymbolModel | MeasureModel"
_Model = TypeVar("_Model", SymbolModel, "MeasureModel")


class Catalogue:
    """Policies of one fleet that have passed their checks, without those of devices that `owns` denies.

    Attributes:
        may_run: whether a device may run a version that it was never seen to run.
        pushed: whether a version is sent to a device, and in no file.
        may_go_back: whether a device may run an earlier version again: signed versions only grow.
        charges: counts changes of the result of `charged_policies`, except by new policies.
    """

    def __init__(self, fleet: str, owns: Callable[[str], bool] = lambda _device: True) -> None:
        self.fleet = fleet
        self.owns = owns
        self._devices: dict[str, dict[str, dict[int, AnyModel]]] = {}
        self._old_models = defaultdict[tuple[str, str], dict[int, AnyModel]](dict)
        self._stored_versions = defaultdict[tuple[str, str], set[int]](set)
        self._versions_run = defaultdict[tuple[str, str], set[int]](set)
        self.may_run: Callable[[str, int], bool] = lambda _device, _version: True
        self.pushed: Callable[[str, int], bool] = lambda _device, _version: False
        self.may_go_back: Callable[[str], bool] = lambda _device: True
        self.charges = 0
        self._kinds: dict[tuple[str, str], type[AnyPolicy]] = {}
        self._verified_claims: set[object] = set()

    @classmethod
    def load(
        cls,
        directory: Path | None,
        fleet: str,
        owns: Callable[[str], bool] = lambda _device: True,
        *,
        signed: bool = False,
    ) -> Self:
        """Read every `*.json` file of a directory, which may hold none if policies are `signed`, in a registry.

        Raises PolicyError or GuaranteeError with a file's name.
        """
        catalogue = cls(fleet, owns)
        if directory is None:
            return catalogue
        try:
            files = sorted(path for path in directory.iterdir() if path.suffix == ".json")
        except OSError as error:
            raise PolicyError(f"cannot read the folder of policies {directory.name}: {cause(error)}") from None
        if not files and not signed:
            raise PolicyError(
                f"the folder of policies {directory.name} holds no .json file: copy the policy of each device there, "
                "or name the registry of signed ones in [signed]"
            )
        for path in files:
            try:
                catalogue.add(read_policy(path.read_bytes()))
            except (PolicyError, GuaranteeError) as error:
                raise type(error)(f"{path.name}: {error}") from None
            except OSError as error:
                raise PolicyError(f"{path.name}: {error.strerror}") from None
        return catalogue

    def add(self, policy: AnyPolicy) -> None:
        """Accept frames under a policy.

        Raises PolicyError if the policy is another fleet's, or differs from a policy of the same version, in force or
        retired. Raises GuaranteeError if its guarantee is false.
        """
        if policy.fleet != self.fleet:
            raise PolicyError(f"policy is for fleet {policy.fleet}, this gateway serves {self.fleet}")
        if not self.owns(policy.device):
            return
        if (claim := _claim(policy)) not in self._verified_claims:
            policy.verify()
            self._verified_claims.add(claim)
        self._refuse_other_kind(policy)
        if self.policies_of(policy.device, policy.stream).get(policy.version, policy) != policy:
            raise PolicyError(f"another policy of {policy.device}/{policy.stream} has version {policy.version} too")
        self._devices.setdefault(policy.device, {}).setdefault(policy.stream, {})[policy.version] = _make_model(policy)

    def _refuse_other_kind(self, policy: AnyPolicy) -> None:
        if self._kinds.setdefault((policy.device, policy.stream), type(policy)) is not type(policy):
            raise PolicyError(
                f"{policy.device}/{policy.stream} has policies of symbols and of measurements: use two streams"
            )

    def retire(self, documents: Iterable[str]) -> None:
        """Add the policies of stored frames, for their models; further frames under them are not accepted.

        Raises PolicyError if a policy contradicts a loaded one of the same version, or is of another kind.
        """
        for document in documents:
            policy = read_policy(document)
            stream_key = policy.device, policy.stream
            loaded_model = self._devices.get(policy.device, {}).get(policy.stream, {}).get(policy.version)
            self._refuse_other_kind(policy)
            self._stored_versions[stream_key].add(policy.version)
            self._versions_run[stream_key].add(policy.version)
            if loaded_model is None:
                self._old_models[stream_key][policy.version] = _make_model(policy)
            elif loaded_model.policy != policy:
                raise PolicyError(
                    f"version {policy.version} of {policy.device}/{policy.stream} is not the policy that the stored "
                    "frames were made under; give the changed policy a new version"
                )

    def find(self, device: str, stream: str, version: int, kind: type[_Model]) -> _Model:
        """Return the model of a policy in force; `kind` is the class that the model has to be of.

        Raises RefusedError for an unknown device, stream or version, the first that applies, or for another kind.
        """
        return _check_kind(self._model_of(device, stream, version, retired=False), kind)

    def recall(self, device: str, stream: str, version: int, kind: type[_Model]) -> _Model:
        """Return the model of a policy in force or retired; `kind` and RefusedError are as for `find`."""
        return _check_kind(self._model_of(device, stream, version), kind)

    def policy(self, device: str, stream: str, version: int) -> AnyPolicy:
        """Return a policy of any kind, in force or retired. Raises RefusedError as `find` does."""
        return self._model_of(device, stream, version).policy

    def _model_of(self, device: str, stream: str, version: int, *, retired: bool = True) -> AnyModel:
        """Return the model of a policy in force or, with `retired`, also of a retired one. Raises RefusedError."""
        if retired and (old_model := self._old_models.get((device, stream), {}).get(version)) is not None:
            return old_model
        if (streams := self._devices.get(device)) is None:
            raise RefusedError(f"no policy for device {device}", Reason.UNKNOWN_DEVICE)
        if (versions := streams.get(stream)) is None:
            raise RefusedError(f"no policy for stream {device}/{stream}", Reason.UNKNOWN_STREAM)
        if (model := versions.get(version)) is None:
            raise RefusedError(f"no policy version {version} of {device}/{stream}", Reason.UNKNOWN_POLICY_VERSION)
        return model

    def policies(self, device: str, stream: str) -> list[Policy]:
        """Return all policies of a stream of symbols, first retired ones, then those in force, each by version."""
        old_models = sorted(self._old_models.get((device, stream), {}).items())
        models = (*old_models, *sorted(self._devices.get(device, {}).get(stream, {}).items()))
        return [model.policy for _, model in models if isinstance(model, SymbolModel)]

    def note_run(self, device: str, stream: str, version: int) -> None:
        """Note that a device has run a version, as a frame or a status says."""
        versions_run = self._versions_run[device, stream]
        if version not in versions_run and version in self.policies_of(device, stream):
            versions_run.add(version)
            self.charges += 1

    def may_have_run(self, device: str, stream: str, version: int) -> bool:
        """Return whether a device is known to have run a version of a stream's policy, or may run it."""
        return version in self._versions_run.get((device, stream), ()) or self.may_run(device, version)

    def charged_policies(self, device: str, stream: str) -> list[Policy]:
        """Return the policies that a stream of symbols ran or may run: audiences are charged for these."""
        return self._policies_run(device, stream, self.may_run)

    def running_policies(self, device: str, stream: str) -> list[Policy]:
        """Return the policies of a stream of symbols that its device ran, or that are in files, even if refused."""
        return self._policies_run(device, stream, lambda device, version: not self.pushed(device, version))

    def _policies_run(self, device: str, stream: str, is_counted: Callable[[str, int], bool]) -> list[Policy]:
        """Return the policies of a stream of symbols that its device ran, or that are counted anyway."""
        versions_run = self._versions_run.get((device, stream), ())
        policies = self.policies(device, stream)
        return [policy for policy in policies if policy.version in versions_run or is_counted(device, policy.version)]

    def planned_policies(self, device: str, stream: str) -> list[Policy]:
        """Return a stream's charged policies; if its device may run none yet, all policies that it may get."""
        return self.charged_policies(device, stream) or self.policies(device, stream)

    def sequences(self, device: str) -> list[str]:
        """Return the sequences of a device by all its policies: each stream's symbols or points, and its windows."""
        sequences = []
        for stream in self.streams(device):
            policies = self.policies(device, stream)
            if not policies or any(policy.table is not None for policy in policies):
                sequences.append(stream)
            window_names = {window.name for policy in policies for window in policy.counted_windows}
            sequences += [sequence_name(stream, window_name) for window_name in sorted(window_names)]
        return sequences

    def is_measured(self, device: str, stream: str) -> bool:
        """Return whether a stream's policies are of measurements."""
        return self._kinds.get((device, stream), Policy) is not Policy

    def policies_of(self, device: str, stream: str) -> dict[int, AnyPolicy]:
        """Return the policies of a stream by version, also those that no device runs any more."""
        models = self._old_models.get((device, stream), {}) | self._devices.get(device, {}).get(stream, {})
        return {version: model.policy for version, model in models.items()}

    def related(self, device: str, stream: str, history_of: Callable[[str, str], History]) -> tuple[RelatedStream, ...]:
        """Return the streams that a policy relates to a stream, with their histories, which `history_of` gives."""
        policies = self.policies_of(device, stream).values()
        stream_names = dict.fromkeys(name for policy in policies for name in related_names(policy))
        related_streams = []
        for name in stream_names:
            other_device, _, other_stream = name.partition("/")
            other_history = history_of(other_device, other_stream) if self.owns(other_device) else None
            versions = tuple(self.policies_of(other_device, other_stream).values())
            related_streams.append(RelatedStream(name, other_history, versions))
        return tuple(related_streams)

    def moving_devices(self, device: str) -> set[str]:
        """Return the devices with a stream that a policy relates to a stream of this device."""
        policies = (policy for stream in self.streams(device) for policy in self.policies_of(device, stream).values())
        return {stream_name.partition("/")[0] for policy in policies for stream_name in related_names(policy)}

    def stored_versions(self, device: str, stream: str) -> frozenset[int]:
        """Return the versions of a stream that stored frames had when the gateway started."""
        return frozenset(self._stored_versions.get((device, stream), ()))

    def newest(self, device: str, stream: str) -> AnyPolicy | None:
        """Return the newest policy in force of a stream, `None` if there is none."""
        models = self._devices.get(device, {}).get(stream)
        return models[max(models)].policy if models else None

    def measured_streams(self) -> list[tuple[str, str]]:
        """Return device and stream of every measured stream with a policy in force, sorted."""
        stream_keys = ((device, stream) for device in self._devices for stream in self._devices[device])
        return sorted(stream_key for stream_key in stream_keys if self.is_measured(*stream_key))

    def groups(self) -> dict[bytes, GroupDocument]:
        """Return by digest the documents of the groups whose sums are in policies, in force or retired."""
        policies = (policy for stream_key in self.symbol_streams() for policy in self.policies(*stream_key))
        return {window_sum.group.digest: window_sum.group for policy in policies for window_sum in policy.sums}

    def symbol_streams(self) -> list[tuple[str, str]]:
        """Return device and stream of every stream of symbols, including those of retired policies, sorted."""
        return sorted(stream_key for stream_key, policy_class in self._kinds.items() if policy_class is Policy)

    def has(self, device: str, stream: str = "") -> bool:
        """Return whether a device, or one of its streams, has a policy in force; any thread may call this."""
        return stream in self._devices.get(device, ()) if stream else device in self._devices

    def names(self) -> tuple[str, ...]:
        """Return all devices that have a policy in force, sorted."""
        return tuple(sorted(self._devices))

    def devices(self, stream: str) -> tuple[str, ...]:
        """Return the devices that have a policy in force for a stream, sorted."""
        return tuple(sorted(device for device, streams in self._devices.items() if stream in streams))

    def streams(self, device: str) -> tuple[str, ...]:
        """Return the streams of a device that have a policy in force, sorted; () for an unknown device."""
        return tuple(sorted(self._devices.get(device, ())))


def _make_model(policy: AnyPolicy) -> AnyModel:
    if isinstance(policy, Policy):
        return SymbolModel.of(policy)
    from gateway.estimates.points import MeasureModel  # here, because most fleets have no points

    return MeasureModel(policy)


def _claim(policy: AnyPolicy) -> object:
    """Return a policy's promise and mechanisms; of equal claims only one has to be verified."""
    if isinstance(policy, Policy):
        column = policy.chains.stream_index(policy.device, policy.stream)  # joint chains have a rate for each stream
        return policy.chains, column, policy.table, policy.guarantee, policy.counted_windows, policy.windows_guarantee
    return policy.model_dump_json(exclude={"fleet", "device", "stream"})


def _check_kind(model: AnyModel, kind: type[_Model]) -> _Model:
    """Return the model. Raises RefusedError if it is of another kind."""
    if not isinstance(model, kind):
        stream_kind = "a stream of symbols" if isinstance(model, SymbolModel) else "a measured stream"
        raise RefusedError(f"{model.policy.device}/{model.policy.stream} is {stream_kind}", Reason.WRONG_KIND)
    return model
