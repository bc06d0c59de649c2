#!/bin/sh
# Makes the namespace TEMPORAL_NAMESPACE, unless it is there. RETENTION is how long
# the history of a closed workflow is kept. Address and credentials come from the
# TEMPORAL_… variables of Temporal's command line.
set -eu

attempts=30
# The port is open before the server can answer.
until temporal operator cluster health >/dev/null 2>&1; do
  attempts=$((attempts - 1))
  if [ "$attempts" -eq 0 ]; then
    echo "Temporal at $TEMPORAL_ADDRESS is not healthy:" >&2
    exec temporal operator cluster health
  fi
  sleep 2
done

if temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
  echo "Namespace $TEMPORAL_NAMESPACE is there."
else
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
fi
