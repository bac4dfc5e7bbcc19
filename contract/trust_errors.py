"""Why a signed document is not accepted: one error for each rule."""

from __future__ import annotations

from contract.errors import FuguError, Reason

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


class EnvelopeError(TrustError):
    """The bytes are no envelope, or not of this kind; or what was signed is malformed."""

    reason = Reason.MALFORMED


class RoleError(TrustError):
    """No key that may sign such a document has signed it."""

    reason = Reason.WRONG_ROLE


class SignatureError(TrustError):
    """A signature of a key that may sign does not match what it signs."""

    reason = Reason.BAD_SIGNATURE


class ThresholdError(TrustError):
    """Too few of the keys that may sign have signed."""

    reason = Reason.THRESHOLD


class AddressError(TrustError):
    """The document is for somebody else."""

    reason = Reason.NOT_ADDRESSED


class ReplayError(TrustError):
    """A newer document has been accepted before."""

    reason = Reason.REPLAYED


class ConflictError(TrustError):
    """A document of the same version, with other content, has been accepted before."""

    reason = Reason.SAME_VERSION


class ExpiredError(TrustError):
    """The document's time is over."""

    reason = Reason.EXPIRED


class NotYetValidError(TrustError):
    """The document's time has not come."""

    reason = Reason.NOT_YET_VALID


class FalseGuaranteeError(TrustError):
    """A policy does not guarantee what it claims, or cannot be run."""

    reason = Reason.GUARANTEE


class CeilingError(TrustError):
    """A policy promises less than the device's owner demands."""

    reason = Reason.CEILING


class PinnedError(TrustError):
    """A policy keeps to the ceilings, but its guarantee is not about what the device's owner has pinned."""

    reason = Reason.PINNED


class JointBoundError(TrustError):
    """The owner limits what all streams tell together, and for these streams nobody knows that."""

    reason = Reason.NO_JOINT_BOUND


class RootError(TrustError):
    """A new root does not follow from the one in force."""

    reason = Reason.ROOT
