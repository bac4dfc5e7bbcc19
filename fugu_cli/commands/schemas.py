"""`fugu deploy schemas`: schemas of configuration files, by which editors complete keys."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

from edge_agent.config_schema import AgentConfig
from fugu.contract._document import Document
from fugu.host.files import new_folder
from fugu.library.report import JsonObject
from fugu_cli.app import check_commands
from fugu_cli.commands.deploy import OutOption
from fugu_helper.config import HelperConfig
from gateway.config import GatewayConfig, PageFile
from gateway.releases.config import ReleaseConfig

__all__ = ["FILES", "schema", "write"]

FILES: dict[str, type[Document]] = {
    "agent": AgentConfig,
    "dashboard": PageFile,
    "gateway": GatewayConfig,
    "helper": HelperConfig,
    "releases": ReleaseConfig,
}
"""The model of each file, by the file's name without ".toml"."""

_ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*): (.+(?:\n {6,}.+)*)", re.MULTILINE)


def schema(model: type[Document]) -> JsonObject:
    """Build the schema of a configuration file, with descriptions of its keys from docstrings."""
    json_schema = model.model_json_schema()
    for definition in (json_schema, *json_schema.get("$defs", {}).values()):
        description, _, attribute_lines = definition.get("description", "").partition("\n\nAttributes:\n")
        if description:
            definition["description"] = inspect.cleandoc(description)
        for names, attribute_text in _ENTRY.findall(attribute_lines):
            for name in names.split(", "):
                if name in definition.get("properties", {}):
                    definition["properties"][name]["description"] = " ".join(attribute_text.split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema}


def write(folder: Path) -> list[Path]:
    """Write all schemas into a folder, as `agent.schema.json`; return their paths."""
    files = {folder / f"{name}.schema.json": schema(model) for name, model in FILES.items()}
    for file, document in files.items():
        file.write_text(json.dumps(document, indent=1) + "\n")
    return list(files)


def schemas(out: OutOption) -> None:
    """Write schemas of configuration files, for editors.

    An editor completes keys by them, and marks wrong ones: of agent.toml, gateway.toml, dashboard.toml, helper.toml
    and releases.toml.

    \b
    examples:
      fugu deploy schemas schemas
    """
    new_folder(out)
    for file in write(out):
        print(f"{file}: for the first line of {file.name.partition('.')[0]}.toml: #:schema {file}")


check_commands(__name__)
