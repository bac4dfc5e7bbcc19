"""The base of every document that comes from outside: immutable, strictly typed, without unknown fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Document"]


class Document(BaseModel):
    """An immutable document; unknown fields, coercions, infinities and NaN are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
