#!/bin/sh
# Notes in the log directory of a run that a hook of this tree was live, and in which session.
# Standard input is the harness's own JSON, which this hook does not need. Outside a recorded run
# there is no log directory and nothing is written.
cat >/dev/null
event=$(printf '%s' "${1:-unnamed}" | tr -cd 'A-Za-z')
session=$(printf '%s' "${RECORDER_SESSION:-}" | tr -cd 'A-Za-z0-9._-')
if [ -n "${RECORDER_LOG_DIR:-}" ] && [ -d "$RECORDER_LOG_DIR" ]; then
    printf '{"hook":"session-note","event":"%s","probe_session":"%s"}\n' "$event" "$session" \
        >>"$RECORDER_LOG_DIR/hooks.jsonl"
fi
if [ "$event" = SessionStart ]; then
    echo 'A decision whose status is "superseded" is a record, and not a ruling.'
fi
