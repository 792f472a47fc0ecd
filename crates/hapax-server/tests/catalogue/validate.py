"""Validates an OpenAPI document, its schemas, and the examples of its webhooks."""

import json
import sys

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

document = json.load(sys.stdin)
OpenAPIV31SpecValidator(document).validate()

components = document["components"]
for schema in components["schemas"].values():
    Draft202012Validator.check_schema(schema)

seen = 0
for webhook in document["webhooks"].values():
    content = webhook["post"]["requestBody"]["content"]["application/json"]
    Draft202012Validator.check_schema(content["schema"])
    # References of the schema lead to the components of the document.
    validator = Draft202012Validator({**content["schema"], "components": components})
    for example in content.get("examples", {}).values():
        validator.validate(example["value"])
        seen += 1
print(f"webhooks {len(document['webhooks'])}, examples {seen}")
