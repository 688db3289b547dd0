from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
import base64

def verify_signature(envelope, payload, sender_public_key_pem):
    # Load public key from PEM format (wire format per Section 06)
    # Implementations MAY use hex encoding internally but the wire format is PEM
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    public_key = load_pem_public_key(sender_public_key_pem.encode())

    # Construct the canonical string for verification per Section 04:
    # from|to|subject|priority|in_reply_to|payload_hash
    # where payload_hash = Base64(SHA256(JSON.stringify(payload, sort_keys=True)))
    import json, hashlib
    payload_json = json.dumps(payload, separators=(',', ':'), sort_keys=True)
    payload_hash = base64.b64encode(hashlib.sha256(payload_json.encode()).digest()).decode()

    canonical = (
        f"{envelope['from']}|{envelope['to']}|{envelope['subject']}|"
        f"{envelope.get('priority', 'normal')}|{envelope.get('in_reply_to', '')}|"
        f"{payload_hash}"
    )

    # Verify signature against canonical string
    signature = base64.b64decode(envelope["signature"])
    try:
        public_key.verify(signature, canonical.encode('utf-8'))
        return True
    except:
        return False
