# A messaging client of curl, jq and openssl, as the shell clients of the protocol are
# written. It goes through everything that they do. $1 is the server.
set -euo pipefail
server=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

say() { echo "mail.sh: $*" >&2; exit 1; }
api() { # METHOD PATH KEY [BODY]: the body of the answer, an error unless it is 2xx
  local out code
  out=$(curl -s --max-time 15 -X "$1" -w '\n%{http_code}' ${3:+-H "Authorization: Bearer $3"} -H 'Content-Type: application/json' ${4:+-d "$4"} "$server$2")
  code=${out##*$'\n'}
  case $code in 2*) echo "${out%$'\n'*}" ;; *) say "$1 $2: $out" ;; esac
}
register() { # NAME: keys, and a registration in NAME.json
  openssl genpkey -algorithm Ed25519 -out "$1.pem" 2>/dev/null
  openssl pkey -in "$1.pem" -pubout -out "$1.pub"
  api POST /api/v1/register "" "$(jq -n --arg n "$1" --arg t "$tenant" --arg k "$(cat "$1.pub")" \
    '{name: $n, tenant: $t, public_key: $k, key_algorithm: "Ed25519", agent_id: "4576852d-e25e-482c-8aa47-c7aaf7135839"}')" >"$1.json"
}
key() { jq -r .api_key "$1.json"; }
address() { jq -r .address "$1.json"; }
sign() { # NAME FROM TO SUBJECT PRIORITY REPLY PAYLOAD
  local hash subject
  hash=$(jq -cS . <<<"$7" | tr -d '\n' | openssl dgst -sha256 -binary | base64 -w0)
  # The subject goes through a line of tab-separated values, as in the real clients.
  IFS=$'\t' read -r subject < <(jq -rn --arg s "$4" '[$s] | @tsv')
  subject=$(sed 's/^ *//; s/ *$//' <<<"$subject")
  printf '%s|%s|%s|%s|%s|%s' "$2" "$3" "$subject" "$5" "$6" "$hash" >signed
  openssl pkeyutl -sign -inkey "$1.pem" -rawin -in signed | base64 -w0
}
send() { # NAME TO SUBJECT PRIORITY REPLY PAYLOAD
  local signature
  signature=$(sign "$1" "$(address "$1")" "$2" "$3" "$4" "$5" "$6")
  api POST "/api/v1/route" "$(key "$1")" "$(jq -n --arg to "$2" --arg s "$3" --arg p "$4" --arg r "$5" --argjson payload "$6" --arg sig "$signature" \
    '{to: $to, subject: $s, priority: $p, payload: $payload, in_reply_to: (if $r == "" then null else $r end), thread_id: null, signature: $sig}')"
}

tenant=$(api GET /api/organization "" | jq -r .organization)
[ "$tenant" = default ] || say "the tenant is $tenant"
register alice
register bob

# Send, with a subject and a text that are easily spoilt on the way.
payload=$(jq -n '{type: "request", message: "How are you? héllo ☕ <b>&", context: {z: 1, a: {y: 2.5, b: [1, "é"], "10": 1, "2": 2}}}')
id=$(send alice "$(address bob)" '  back\slash	and tab ' high "" "$payload" | jq -r .id)

# Fetch and read, and verify as a recipient does.
api GET /api/v1/v1/messages/pending "$(key bob)" >inbox.json
[ "$(jq -r '.messages[0].envelope.id' inbox.json)" = "$id" ] || say "the message is not there: $(cat inbox.json)"
[ "$(jq -cS '.messages[0].payload' inbox.json)" = "$(jq -cS . <<<"$payload")" ] || say "the payload is another"
[ "$(jq -r '.messages[0].envelope.priority' inbox.json)" = high ] || say "the priority is another"
jq -r '.messages[0].sender_public_key' inbox.json >sender.pub
jq -rj '.messages[0].envelope.signature' inbox.json | base64 -d >signature
sign alice "$(jq -r '.messages[0].envelope.from' inbox.json)" "$(jq -r '.messages[0].envelope.to' inbox.json)" "$(jq -r '.messages[0].envelope.subject' inbox.json)" high "" "$(jq -c '.messages[0].payload' inbox.json)" >/dev/null
openssl pkeyutl -verify -pubin -inkey sender.pub -rawin -in signed -sigfile signature >/dev/null || say "the signature does not verify"

# Reply, acknowledge in each of the forms, and fetch the reply.
api DELETE "/api/v1/messages/pending?id=$id" "$(key bob)" | jq -e '.acknowledged == true' >/dev/null
api DELETE "/api/v1/v1/messages/pending/$id" "$(key bob)" | jq -e '.acknowledged == true' >/dev/null
reply=$(send bob "$(address alice)" "Re: hello" normal "$id" '{"type":"response","message":"Thanks","context":null}' | jq -r .id)
api GET /v1/inbox "$(key alice)" | jq -e --arg id "$reply" --arg to "$id" '.messages[0] | .id == $id and .envelope.in_reply_to == $to and .envelope.thread_id == $to' >/dev/null || say "the reply is not there"
api POST "/v1/inbox/$reply/ack" "$(key alice)" >/dev/null

# An attachment: announce, upload, confirm, look, send, download.
printf 'some log\n' >my_log.txt
digest=sha256:$(sha256sum my_log.txt | cut -d' ' -f1)
api POST /attachments/upload "$(key alice)" "$(jq -n --arg d "$digest" '{filename: "my_log.txt", content_type: "text/plain", size: 9, digest: $d}')" >att.json
att=$(jq -r .attachment_id att.json)
code=$(curl -s -o /dev/null -w '%{http_code}' -X PUT -H 'Content-Type: text/plain' --data-binary @my_log.txt "$(jq -r .upload_url att.json)")
[ "$code" = 200 ] || say "the upload was answered with $code"
api POST "/attachments/$att/confirm" "$(key alice)" >/dev/null
api GET "/attachments/$att" "$(key alice)" >status.json
[ "$(jq -r .scan_status status.json)" = clean ] || say "the scan: $(cat status.json)"
payload=$(jq -n --slurpfile s status.json '{type: "request", message: "see the log", context: null, attachments: [$s[0] | {id: .attachment_id, filename, content_type, size, digest, url, scan_status, uploaded_at: "2026-11-15T01:09:22Z", expires_at: "2026-11-22T01:09:22Z"}]}')
send alice "$(address bob)" "A log" normal "" "$payload" >/dev/null
api GET /api/v1/messages/pending "$(key bob)" >inbox.json
curl -s -C - -o got.txt -w '%{http_code}' "$(jq -r '.messages[0].payload.attachments[0].url' inbox.json)" | grep -q 200 || say "no download"
cmp got.txt my_log.txt
curl -s -o got2.txt -w '%{http_code}' -H "Authorization: Bearer $(key bob)" "$server/attachments/$att/download" | grep -q 200 || say "no download with the key"
cmp got2.txt my_log.txt

# A new pair of keys, proved with the old one.
openssl genpkey -algorithm Ed25519 -out new.pem 2>/dev/null
pem=$(openssl pkey -in new.pem -pubout)
printf '%s' "$pem" >proof.txt
proof=$(openssl pkeyutl -sign -inkey alice.pem -rawin -in proof.txt | base64 -w0)
api POST /api/v1/auth/rotate-keys "$(key alice)" "$(jq -n --arg k "$pem" --arg p "$proof" '{new_public_key: $k, key_algorithm: "Ed25519", proof: $p}')" | jq -e .rotated >/dev/null
mv new.pem alice.pem
send alice "$(address bob)" "With the new key" normal "" '{"message":"m","type":"request"}' | jq -e '.status == "queued"' >/dev/null
echo "mail.sh: all done"
