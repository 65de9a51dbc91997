#!/usr/bin/env bash
# Prints the records of one partition of "payments", and goes on where the last run stopped.
#   consume.sh [partition] [file that remembers the offset]
set -euo pipefail
url=${RIACHO_URL:-http://localhost:8080}
partition=${1:-0}
memory=${2:-payments-$partition.offset}
headers=$(mktemp)
trap 'rm -f "$headers"' EXIT

while true; do
  # Without an offset yet, begin with the oldest record. The call waits up to a second for more.
  from=at=earliest
  [[ -s $memory ]] && from=offset=$(<"$memory")
  records=$(curl -sS --fail-with-body -D "$headers" -H 'Accept: application/x-ndjson' \
    "$url/v1/topics/payments/partitions/$partition/records?$from&max_wait_ms=1000&value_format=json")
  [[ -n $records ]] || break
  printf '%s\n' "$records"
  # First the work, then the offset: a crash in between repeats records and loses none.
  tr -d '\r' <"$headers" | sed -n 's/^riacho-next-offset: //p' >"$memory"
done
