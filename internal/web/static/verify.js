// Checks, in the browser and with nothing of the server's but what is on the page, that an
// entry is in the ledger: the hash of the record, with the hashes of the proof, must come
// to the root that the checkpoint names, and the checkpoint must be signed by the key.
'use strict';

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const hash = async (...parts) => {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) { all.set(p, at); at += p.length; }
  return new Uint8Array(await crypto.subtle.digest('SHA-256', all));
};
const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

// rootOf folds an inclusion proof (RFC 9162, 2.1.3.2).
async function rootOf(leaf, index, size, hashes) {
  let fn = index, sn = size - 1n, r = leaf;
  for (const p of hashes) {
    if (sn === 0n) return null;
    if ((fn & 1n) === 1n || fn === sn) {
      r = await hash(Uint8Array.of(1), p, r);
      while ((fn & 1n) === 0n && fn !== 0n) { fn >>= 1n; sn >>= 1n; }
    } else r = await hash(Uint8Array.of(1), r, p);
    fn >>= 1n; sn >>= 1n;
  }
  return sn === 0n ? r : null;
}

// signed checks the note's signature: true, false, or null where the browser cannot.
async function signed(note, key) {
  const end = note.lastIndexOf('\n\n') + 1;
  const [name, , ...encoded] = key.trim().split('+'); // base64 may have a + of its own
  const raw = bytes(encoded.join('+'));
  const line = note.slice(end + 1).split('\n').find((l) => l.startsWith(`\u2014 ${name} `));
  if (!line || raw[0] !== 1) return false;
  try {
    const k = await crypto.subtle.importKey('raw', raw.slice(1), { name: 'Ed25519' }, false, ['verify']);
    return await crypto.subtle.verify({ name: 'Ed25519' }, k, bytes(line.split(' ')[2]).slice(4), new TextEncoder().encode(note.slice(0, end)));
  } catch { return null; }
}

async function verify(at) {
  const d = at.dataset;
  const say = (good, text) => {
    const li = document.createElement('li');
    li.className = good === null ? 'muted' : good ? 'good' : 'bad';
    li.textContent = `${good === null ? '\u2013' : good ? '\u2713' : '\u2717'} ${text}`;
    document.getElementById('verdict').append(li);
    return good;
  };
  document.getElementById('verdict').replaceChildren();
  const [, size, root] = d.checkpoint.split('\n');
  const leaf = await hash(Uint8Array.of(0), bytes(d.record));
  say(same(leaf, bytes(d.leaf)), `The record\u2019s hash is ${d.leaf}`);
  const top = await rootOf(leaf, BigInt(d.seq) - 1n, BigInt(size), d.hashes.split(' ').filter(Boolean).map(bytes));
  const inside = say(top !== null && same(top, bytes(root)), `With ${d.hashes.split(' ').filter(Boolean).length} hashes it comes to the root of the checkpoint over ${size} entries`);
  const by = say(await signed(d.checkpoint, d.key), 'The checkpoint is signed by the ledger\u2019s key');
  const good = inside && by !== false;
  at.dataset.verified = good ? 'yes' : 'no';
  say(good, good ? (by === null ? 'The entry is in the ledger. This browser cannot check the signature.' : 'The entry is in the ledger, as it was signed.') : 'This does not hold. Do not trust this entry.');
}

const button = document.getElementById('verify');
if (button && window.crypto?.subtle) button.addEventListener('click', () => verify(document.getElementById('proof')));
else if (button) { button.disabled = true; button.title = 'Browsers only do this over https or on this machine'; }
