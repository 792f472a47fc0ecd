"""Validates manifests against the schemas of Kubernetes, and prints all objects as a JSON array.

    manifests.py RELEASE,RELEASE... FILE...

An unknown member is an error, as it is for the API server with strict validation.
"""

import json
import sys

import kubernetes_validate
import yaml


def main(releases: list[str], files: list[str]) -> None:
    objects = []
    for file in files:
        with open(file, encoding="utf-8") as text:
            # An empty document separates two others.
            found = [it for it in yaml.safe_load_all(text) if it is not None]
        for it in found:
            name = f"{file}: {it['kind']} {it['metadata']['name']}"
            for release in releases:
                try:
                    kubernetes_validate.validate(it, release, strict=True)
                except kubernetes_validate.ValidationError as error:
                    path = ".".join(map(str, error.path))
                    sys.exit(f"{name}: not valid in Kubernetes {release}: {path}: {error.message}")
                except kubernetes_validate.SchemaNotFoundError as error:
                    sys.exit(f"{name}: {error.message}")
        objects += found
    json.dump(objects, sys.stdout)


main(sys.argv[1].split(","), sys.argv[2:])
