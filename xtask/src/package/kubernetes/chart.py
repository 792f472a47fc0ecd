"""Lints a chart, and renders it with each of several values into files of a folder.

    chart.py CHART FOLDER RENDERED REFUSED

RENDERED is a JSON array of values that the chart accepts, REFUSED one of values that its schema must
refuse. The files are named 0.yaml, 1.yaml and so on.
"""

import json
import pathlib
import sys

import helm_python as helm


def main(path: str, folder: str, rendered: str, refused: str) -> None:
    for message in helm.lint(path, strict=True, kube_version="v1.30.0")["messages"]:
        # 1 is a recommendation, 2 a warning and 3 an error.
        if message["severity"] > 1:
            sys.exit(f"{message['path']}: {message['error']}")
    with helm.Chart.load(path) as chart:
        for number, values in enumerate(json.loads(rendered)):
            chart.validate_schema(values)
            files = chart.render(values, name="hapax", namespace="shop")
            texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
            pathlib.Path(folder, f"{number}.yaml").write_text("\n---\n".join(texts))
        for values in json.loads(refused):
            try:
                chart.validate_schema(values)
            except helm.HelmError:
                continue
            sys.exit(f"the schema of the values accepts {json.dumps(values)}")


main(*sys.argv[1:])
