// Has a passkey sign what a form is about to do. The form is sent to the server once to ask what is to be
// signed, and then, with the signature, as any other form. Without this script it is sent without a
// signature, and the server refuses it.
'use strict';

const decoded = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
const encoded = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
const listed = (ids) => ids.map((id) => ({ type: 'public-key', id: decoded(id) }));

async function create(wanted) {
  const made = await navigator.credentials.create({ publicKey: {
    challenge: decoded(wanted.challenge), rp: { id: wanted.rp_id, name: 'Signalbox' },
    user: { id: decoded(wanted.user_id), name: wanted.user, displayName: wanted.user },
    pubKeyCredParams: wanted.algorithms.map((alg) => ({ type: 'public-key', alg })),
    authenticatorSelection: { residentKey: 'preferred', userVerification: 'required' },
    excludeCredentials: listed(wanted.credentials), attestation: 'none',
  } });
  return { credential: made.id, client_data: encoded(made.response.clientDataJSON), attestation: encoded(made.response.attestationObject) };
}

async function sign(wanted) {
  const made = await navigator.credentials.get({ publicKey: {
    challenge: decoded(wanted.challenge), rpId: wanted.rp_id, userVerification: 'required', allowCredentials: listed(wanted.credentials),
  } });
  const r = made.response;
  return { credential: made.id, authenticator_data: encoded(r.authenticatorData), client_data: encoded(r.clientDataJSON), signature: encoded(r.signature) };
}

// ask asks what is to be signed. Why the server refuses is said on the page that it then shows.
async function ask(form, button) {
  const fields = new URLSearchParams(new FormData(form, button));
  fields.set('ask', '1');
  const answer = await fetch(form.action, { method: 'POST', body: fields, redirect: 'manual' });
  if (!answer.ok) { location.reload(); throw new Error('It was refused.'); }
  const wanted = await answer.json();
  const at = (wanted.create || wanted.sign)?.origin;
  if (at && at !== location.origin) throw Object.assign(new Error(`Passkeys work at ${at}: `), { link: at + location.pathname });
  return wanted;
}

function put(form, name, value) {
  const field = form.elements[name] || Object.assign(document.createElement('input'), { type: 'hidden', name });
  field.value = JSON.stringify(value);
  form.append(field);
}

// While somebody looks for their key, an open dialog keeps the page as it is.
function waits(form) {
  const note = Object.assign(document.createElement('dialog'), { className: 'signing', open: true, textContent: 'Waiting for your passkey \u2026' });
  form.append(note);
  return note;
}

document.addEventListener('submit', async (e) => {
  const form = e.target, button = e.submitter;
  if (!form.matches('form[data-passkey]') || form.dataset.signed) return;
  e.preventDefault();
  e.stopImmediatePropagation();
  if (form.querySelector('dialog')) return;
  form.querySelector('[role=alert]')?.remove();
  const note = waits(form);
  try {
    let wanted = await ask(form, button);
    if (wanted.create) { put(form, 'made', await create(wanted.create)); wanted = await ask(form, button); }
    if (wanted.done) { location.reload(); return; }
    if (wanted.sign) put(form, 'assertion', await sign(wanted.sign));
    form.dataset.signed = '1';
    if (form.isConnected) form.requestSubmit(button); else location.reload();
  } catch (error) {
    const why = Object.assign(document.createElement('p'), { className: 'bad', textContent: error.link ? error.message : `No passkey has signed this, and nothing was changed. ${error.message}` });
    why.setAttribute('role', 'alert');
    if (error.link) why.append(Object.assign(document.createElement('a'), { href: error.link, textContent: 'open this page there' }));
    form.append(why);
  } finally { note.remove(); }
}, true);
