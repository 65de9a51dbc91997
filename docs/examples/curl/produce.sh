#!/usr/bin/env bash
# Writes three records to the topic "payments", which it creates if need be.
set -euo pipefail
url=${RIACHO_URL:-http://localhost:8080}

# 201: created. 409: it exists, which is just as well.
status=$(curl -sS -o /dev/null -w '%{http_code}' "$url/v1/topics" \
  --json '{"name": "payments", "partitions": 3}')
[[ $status == 201 || $status == 409 ]] || { echo "creating the topic: $status" >&2; exit 1; }

# A record per line, so that any tool that prints JSON can be the source. --fail-with-body makes
# curl end with an error when the gateway says no, and still show why.
curl -sS --fail-with-body "$url/v1/topics/payments/records" \
  -H 'Content-Type: application/x-ndjson' --data-binary @- <<'RECORDS'
{"key": "ana", "value": {"amount": 12, "currency": "BRL"}}
{"key": "bia", "value": {"amount": 7, "currency": "BRL"}, "headers": {"source": "web"}}
{"key": "ana", "value": {"amount": 30, "currency": "BRL"}}
RECORDS
echo
