"""Why a signed document is not accepted: one error for each rule."""

from __future__ import annotations

from contract.errors import FuguError

__all__ = [
    "AddressError",
    "CeilingError",
    "ConflictError",
    "EnvelopeError",
    "ExpiredError",
    "FalseGuaranteeError",
    "JointBoundError",
    "NotYetValidError",
    "PinnedError",
    "ReplayError",
    "RoleError",
    "RootError",
    "SignatureError",
    "ThresholdError",
    "TrustError",
]


class TrustError(FuguError):
    """A document is not accepted."""

    reason = "trust"


class EnvelopeError(TrustError):
    """The bytes are no envelope, or not of this kind; or what was signed is malformed."""

    reason = "malformed"


class RoleError(TrustError):
    """No key that may sign such a document has signed it."""

    reason = "wrong_role"


class SignatureError(TrustError):
    """A signature of a key that may sign does not match what it signs."""

    reason = "bad_signature"


class ThresholdError(TrustError):
    """Too few of the keys that may sign have signed."""

    reason = "threshold"


class AddressError(TrustError):
    """The document is for somebody else."""

    reason = "not_addressed"


class ReplayError(TrustError):
    """A newer document has been accepted before."""

    reason = "replayed"


class ConflictError(TrustError):
    """A document of the same version, with other content, has been accepted before."""

    reason = "same_version"


class ExpiredError(TrustError):
    """The document's time is over."""

    reason = "expired"


class NotYetValidError(TrustError):
    """The document's time has not come."""

    reason = "not_yet_valid"


class FalseGuaranteeError(TrustError):
    """A policy does not guarantee what it claims, or cannot be run."""

    reason = "guarantee"


class CeilingError(TrustError):
    """A policy promises less than the device's owner demands."""

    reason = "ceiling"


class PinnedError(TrustError):
    """A policy keeps to the ceilings, but its guarantee is not about what the device's owner has pinned."""

    reason = "pinned"


class JointBoundError(TrustError):
    """The owner limits what all streams tell together, and for these streams nobody knows that."""

    reason = "no_joint_bound"


class RootError(TrustError):
    """A new root does not follow from the one in force."""

    reason = "root"
