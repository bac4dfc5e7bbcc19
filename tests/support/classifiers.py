"""Discretisers that run, by their JSON form: it is checked and compiled as that of a policy is."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from fugu.contract import classify
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Discretiser
from fugu.core.states import Classifier

__all__ = ["classifier_of", "compiled"]

_READER: TypeAdapter[Any] = TypeAdapter(Discretiser)


def compiled(document: dict[str, Any]) -> bytes:
    return compile_discretiser(_READER.validate_json(json.dumps(document)))


def classifier_of(document: dict[str, Any]) -> Classifier:
    return classify.classifier_of(compiled(document))
