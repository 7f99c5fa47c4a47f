#!/bin/sh
# Serves the agent RUNNER_AGENT from /workspace. The container's object passes the URL of the server and a key in variables.
# shellcheck disable=SC2086 # RUNNER_OPTIONS is a list of words.
exec agentctl runner --root /workspace --agent "$RUNNER_AGENT" $RUNNER_OPTIONS
