"""docs/schemas is what the code prints."""

from pathlib import Path

import jsonschema
import pytest

from tfctl.schemas import document_kinds, file_name, main, render, schema_of

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"


def test_the_folder_is_current(tmp_path):
    main(tmp_path)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert kept == written, "run: python -m tfctl.schemas docs/schemas"


@pytest.mark.parametrize("name", list(document_kinds()))
def test_a_schema_is_valid_and_closed_over_its_name(name):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "tokenflow.other/1"}, schema)
    assert file_name(name).endswith(".1.schema.json")
    assert render(name).endswith("\n")


def test_a_missing_field_is_noticed():
    with pytest.raises(jsonschema.ValidationError, match="required"):
        jsonschema.validate({"schema": "tokenflow.error/1", "version": "1"}, schema_of("tokenflow.error/1"))
