#!/usr/bin/env bash
# Runs the probe in CI: the text report goes to the log, JUnit XML and SARIF to files. Other CI systems can call the
# script directly; the variables are the inputs of action.yml.
set -euo pipefail

plan=${PROBE_PLAN:?expected the path of a plan file}
command=${PROBE_COMMAND:-hapax-probe}
repository=https://github.com/hapax-rs/hapax

if ! command -v "$command" >/dev/null; then
  if [ "$command" != hapax-probe ]; then
    echo "PROBE_COMMAND: $command is not installed" >&2
    exit 2
  fi
  revision=${PROBE_REVISION:-main}
  folder=$(mktemp -d)
  git -C "$folder" init --quiet
  git -C "$folder" fetch --quiet --depth 1 "$repository" "$revision"
  git -C "$folder" checkout --quiet FETCH_HEAD
  cargo install --quiet --locked --path "$folder/crates/hapax-probe" --root "$folder/installed"
  command=$folder/installed/bin/hapax-probe
fi

flags=(--plan "$plan" --also "junit=${PROBE_JUNIT:-hapax-probe.xml}" --also "sarif=${PROBE_SARIF:-hapax-probe.sarif}")
if [ -n "${PROBE_PROFILE:-}" ]; then
  flags+=(--profile "$PROBE_PROFILE")
fi
read -r -a further <<<"${PROBE_ARGUMENTS:-}"

rm -f "${PROBE_SARIF:-hapax-probe.sarif}"
code=0
"$command" "${flags[@]}" ${further[@]+"${further[@]}"} || code=$?
# Without a report, 2 means that the plan or the arguments are not valid.
if [ "$code" = 2 ] && [ "${PROBE_UNKNOWN:-fail}" = pass ] && [ -s "${PROBE_SARIF:-hapax-probe.sarif}" ]; then
  code=0
fi
exit "$code"
