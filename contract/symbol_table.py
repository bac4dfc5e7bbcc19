"""A noise table of symbols as a field of a policy: in JSON an object with its rows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetPydanticSchema
from pydantic_core import CoreSchema, core_schema

from contract._document import Document
from contract.noise_table import NoiseTable

__all__ = ["SymbolTable"]


class _Written(Document):
    """A table as it is written."""

    rows: tuple[tuple[int, ...], ...]


def _read(written: _Written) -> NoiseTable:
    return NoiseTable(written.rows)


def _refuse_points(table: NoiseTable) -> NoiseTable:
    if table.points:
        raise ValueError("a policy of symbols has a table of points")
    return table


def _schema(_source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    written = core_schema.no_info_after_validator_function(_read, handler.generate_schema(_Written))
    given = core_schema.no_info_after_validator_function(_refuse_points, core_schema.is_instance_schema(NoiseTable))
    writing = core_schema.plain_serializer_function_ser_schema(lambda table: {"rows": table.rows})
    return core_schema.json_or_python_schema(written, given, serialization=writing)


SymbolTable = Annotated[NoiseTable, GetPydanticSchema(_schema)]
