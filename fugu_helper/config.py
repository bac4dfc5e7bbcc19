"""A helper's file, and the signed documents of its groups.

A running helper reads them in a child process that then ends: to read documents takes more memory than to run.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, ValidationError, model_validator

from fugu.contract._document import Document, first_problem
from fugu.contract.envelope import sign
from fugu.contract.errors import FuguError
from fugu.contract.groups import GroupDocument
from fugu.contract.policy import Name
from fugu.host.toml_file import read_toml
from fugu.mqtt.broker import Broker

__all__ = ["HelperConfig", "config_document", "read_config", "read_root_key", "signed_documents"]

_HELPER_FIELDS = ("document", "fleet", "helper")
_MAX_DOCUMENTS = 2


class HelperConfig(Document):
    """A helper's file; file names are relative to its folder.

    Attributes:
        root: file of the key that signs documents, opening keys and answers.
        members: file of the homes that are admitted.
        groups: documents of groups, without fleet and helper. A group has one or two, the newer with the later
            `valid_from`.
    """

    fleet: Name
    root: str = "root.key"
    members: str = "members"
    broker: Broker = Broker()
    groups: tuple[dict[str, Any], ...] = Field(min_length=1, max_length=64)

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        for group in self.groups:
            for field_name in _HELPER_FIELDS:
                if field_name in group:
                    raise ValueError(f"a group does not say its {field_name}: that is the helper's")
        return self


def read_config(path: Path) -> HelperConfig:
    """Read a helper's file. Raises FuguError if it cannot be read, or a field is wrong."""
    return read_toml(path, HelperConfig, FuguError)


def read_root_key(path: Path) -> Ed25519PrivateKey:
    """Read the helper's root key. FuguError if its file cannot be read, may be used by others, or holds no key."""
    try:
        if path.stat().st_mode & 0o077:
            raise FuguError(f"{path} may be read by others: chmod 600 it; if they may have, make a new one")
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except OSError as error:
        raise FuguError(f"cannot read {path}: {error.strerror}: fugu helper init makes one") from None
    except ValueError:
        raise FuguError(f"{path} is no root key: fugu helper init makes one") from None


def signed_documents(config: HelperConfig, root_key: Ed25519PrivateKey) -> dict[str, list[tuple[GroupDocument, bytes]]]:
    """Sign the documents of each group. Return them by group, the newest first, each with its encoded envelope.

    Raises FuguError for a wrong document, or too many documents of a group.
    """
    helper_fields = {"fleet": config.fleet, "helper": root_key.public_key().public_bytes_raw().hex()}
    groups: dict[str, list[tuple[GroupDocument, bytes]]] = {}
    for group_fields in config.groups:
        try:
            document = GroupDocument.model_validate_json(json.dumps({**group_fields, **helper_fields}))
        except ValidationError as error:
            name = str(group_fields.get("name"))[:40]
            raise FuguError(f"group {name}: {first_problem(error, 'document')}") from None
        envelope = sign("group", document.payload, [root_key]).encode()
        groups.setdefault(document.name, []).append((document, envelope))
    for name, documents in groups.items():
        documents.sort(key=lambda signed: -signed[0].valid_from)
        if len({document.valid_from for document, _ in documents}) < len(documents) or len(documents) > _MAX_DOCUMENTS:
            raise FuguError(
                f"group {name} has {len(documents)} documents: at most the newest and the one before, by valid_from"
            )
    return groups


def config_document(path: Path) -> dict[str, Any]:
    """Return a helper's settings and its groups' signed documents, as values for JSON. FuguError if a file is wrong."""
    config = read_config(path)
    root_key = read_root_key(path.parent / config.root)
    groups = [
        [
            {
                **{"fleet": document.fleet, "name": document.name, "digest": document.digest.hex()},
                **{"envelope": envelope.hex(), "quorum": document.quorum, "numbers": document.sum_count},
                **{"first_us": document.begins_us(0), "window_us": document.length * document.period_us},
                **{"deadline": document.deadline, "valid_from": document.valid_from},
            }
            for document, envelope in documents
        ]
        for documents in signed_documents(config, root_key).values()
    ]
    return {
        "fleet": config.fleet,
        "root": str(path.parent / config.root),
        "members": str(path.parent / config.members),
        "broker": asdict(config.broker.beside(path.parent)),
        "groups": groups,
    }
