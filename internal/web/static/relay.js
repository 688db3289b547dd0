// The dashboard's one script. Pages work without it; with it they stay up to date, can be
// used from the keyboard, and copy. It fetches pages that the server makes and puts their
// parts in the place of those that are there; it makes no page itself.
'use strict';

const served = new Map(); // id of a live part -> its HTML as the server sent it
const bare = (part) => part.outerHTML.replace(/(<time[^>]*>)[^<]*/g, '$1'); // time passes by itself
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

function remember(from) {
  for (const part of $$('[data-live][id]', from)) served.set(part.id, bare(part));
}

// What the script can do is shown only where the script runs.
function awaken(from) {
  for (const button of $$('[data-copy], [data-script]', from)) button.hidden = false;
}

/* ---- Times ---- */

function relative(seconds) {
  const s = Math.abs(seconds);
  const text = s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  return seconds < 0 ? `in ${text}` : s < 5 ? 'now' : `${text} ago`;
}
function tick(from = document) {
  for (const t of $$('time[datetime]', from)) {
    const text = relative((Date.now() - Date.parse(t.dateTime)) / 1000);
    if (t.textContent !== text) t.textContent = text;
  }
}

/* ---- Parts that stay up to date ---- */

// busy reports whether somebody is writing in a part; it is left alone until they are done.
function busy(part) {
  if ($('dialog[open]', part)) return true;
  return $$('textarea, input:not([type=hidden]):not([type=checkbox]), select', part).some((f) =>
    f === document.activeElement || (f.tagName !== 'SELECT' && f.value !== f.defaultValue));
}

// keep carries over what a person has done to a part: ticks, open details, the focus.
function keep(old, fresh) {
  const same = (e) => e.id ? `#${CSS.escape(e.id)}` : e.name ? `[name="${CSS.escape(e.name)}"][value="${CSS.escape(e.value)}"]` : null;
  for (const box of $$('input[type=checkbox]:checked', old)) {
    const it = same(box) && $(same(box), fresh);
    if (it) it.checked = true;
  }
  const open = $$('details', old);
  $$('details', fresh).forEach((d, i) => { if (open[i]) d.open = open[i].open; });
}

// merge changes a list row by row. A row that is gone stays, faded, until the person moves
// on: what they are about to click must not slide away under the pointer.
function merge(old, fresh, whole) {
  // Where somebody is about to click, nothing is pushed away: what is new is announced.
  const held = !whole && (old.matches(':hover') || old.contains(document.activeElement) || $('input:checked', old));
  const rows = new Map($$('[data-key]', old).map((row) => [row.dataset.key, row]));
  if (!rows.size || !$('[data-key]', fresh)) return false;
  let last = null, waiting = 0;
  for (const row of $$('[data-key]', fresh)) {
    const there = rows.get(row.dataset.key);
    rows.delete(row.dataset.key);
    if (there && bare(there) === bare(row)) { last = there; continue; }
    keep(there || row, row);
    if (there && there.contains(document.activeElement)) { there.after(row); $('a', row)?.focus({ preventScroll: true }); there.remove(); } else if (there) there.replaceWith(row);
    else if (held) { waiting++; continue; }
    else {
      row.classList.add('fresh');
      if (last) last.after(row); else $('[data-key]', old).before(row);
    }
    last = row;
  }
  announce(old, waiting);
  for (const row of rows.values()) row.classList.add('gone');
  return true;
}

// announce says in a place of its own how many rows wait to be shown.
function announce(list, waiting) {
  const button = $('[data-fresh]');
  if (!button) return;
  button.hidden = !waiting;
  button.textContent = waiting === 1 ? '1 new' : `${waiting} new`;
  if (waiting) served.delete(list.id); // so that the next look shows them
}

function swap(page, whole) {
  for (const fresh of $$('[data-live][id]', page)) {
    const old = document.getElementById(fresh.id);
    const html = bare(fresh);
    if (!old || served.get(fresh.id) === html) continue;
    // What became moot is shown even to somebody who is writing.
    if (!whole && busy(old) && $('textarea, input:not([type=hidden])', fresh)) { due = 1; continue; }
    served.set(fresh.id, html);
    awaken(fresh);
    tick(fresh);
    if (fresh.dataset.live === 'rows' && merge(old, fresh, whole)) continue;
    const focus = document.activeElement && old.contains(document.activeElement) ? document.activeElement.id : '';
    if (!whole) keep(old, fresh);
    if (!whole && $('.decide', old)) $('.decided', fresh)?.classList.add('was-open'); // as high as before
    const scroll = old.scrollTop;
    old.replaceWith(fresh);
    if (!whole) fresh.scrollTop = scroll;
    if (focus) document.getElementById(focus)?.focus();
  }
}

// pin names the gate that is open in the address, so that another that comes in does not
// take its place while somebody is looking at it.
function pin() {
  const at = $('#slide [data-at]');
  if (at && wide() && location.pathname === '/ui/inbox') history.replaceState(null, '', at.dataset.at);
}

let asking = 0, due = 0, going = 0;
async function load(url, whole) {
  // Where somebody goes counts more than what has changed where they were.
  if (!whole && going) { due = 1; return false; }
  const mine = ++asking;
  if (whole) going = mine;
  try {
    return await bring(url, whole, mine);
  } finally {
    if (going === mine) going = 0;
    if (!going && due && whole) refresh();
  }
}

async function bring(url, whole, mine) {
  const answer = await fetch(url, { headers: { 'X-Relay-Refresh': '1' }, signal: AbortSignal.timeout(15000) });
  if (answer.redirected && new URL(answer.url).pathname === '/ui/login') { location.reload(); return false; }
  if (!answer.ok && !whole) return false;
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  if (mine !== asking) return false;
  if (whole && !$('#slide', page)) throw page;
  document.title = page.title;
  swap(page, whole);
  if (whole) $('#slide').inert = false;
  pin();
  return true;
}

// One look at a time: what changes while the page is on its way is looked for after it, so
// that a slow line under a stream of changes shows the last but one and not none.
let looking = false, again = false;
async function refresh() {
  if (document.hidden) { due = 1; return; }
  if (looking) { again = true; return; }
  due = 0;
  looking = true;
  try { await load(location.href, false); } catch { /* the next change tries again */ }
  looking = false;
  if (again) { again = false; refresh(); } else settle();
}

// What is added up beside the ledger may be behind it, and the page says so: look once more.
let settling = 0;
function settle() {
  clearTimeout(settling);
  if ($('[data-settle]')) settling = setTimeout(refresh, 1000);
}
// Somebody has finished writing: show what has changed meanwhile.
document.addEventListener('focusout', () => setTimeout(() => { if (due !== 0) refresh(); }, 300));

// A page that nobody sees gives its connection back: browsers allow few to one server.
let events = null;
function live() {
  if (document.hidden || events) return;
  const sign = document.getElementById('live');
  const say = (state, text) => { if (sign) { sign.className = `live ${state}`; $('span', sign).textContent = text; } };
  let lost = false;
  events = new EventSource(`/ui/events?on=${encodeURIComponent(document.body.dataset.topics)}`);
  // Something may have happened between the page and the connection.
  events.addEventListener('hello', (e) => { say('on', 'Live'); if (lost || Number(e.data) > Number(document.body.dataset.seq)) refresh(); lost = false; });
  events.addEventListener('change', refresh);
  events.onerror = () => {
    lost = true;
    say('lost', 'Reconnecting');
    // The browser gives up when it is refused: the session may have ended, or the server starts.
    if (events && events.readyState === EventSource.CLOSED) { rest(); refresh(); setTimeout(live, 3000); }
  };
}
function rest() { events?.close(); events = null; }
function stayLive() {
  live();
  document.addEventListener('visibilitychange', () => { if (document.hidden) rest(); else { live(); refresh(); } });
  addEventListener('pagehide', rest);
  addEventListener('pageshow', (e) => { if (e.persisted) location.reload(); });
}

/* ---- Lists that open beside themselves ---- */

// The row is marked at once; what is beside it is inert until it follows.
async function follow(link, push = true) {
  for (const a of $$('[data-list] a')) a.ariaCurrent = a.href === link ? 'true' : null;
  $('#slide').inert = true;
  if (push) history[going ? 'replaceState' : 'pushState'](null, '', link);
  try { await load(link, true); } catch { location.href = link; }
}
addEventListener('popstate', () => { if ($('#slide')) follow(location.href, false); });

const rows = () => $$('[data-list] [data-key]:not(.gone)');
function select(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => $('[aria-current]', row) || row.matches('[aria-current]'));
  const to = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  const link = $('a[href]', to);
  if (!link) return;
  to.scrollIntoView({ block: 'nearest' });
  link.focus({ preventScroll: true });
  if (wide() && $('[data-list][data-beside]')) follow(link.href);
}
const wide = () => matchMedia('(min-width: 1000px)').matches;

/* ---- Clicks and keys ---- */

document.addEventListener('click', async (e) => {
  const copy = e.target.closest('[data-copy]');
  if (copy) {
    const text = copy.dataset.copy || $(copy.dataset.from)?.textContent || '';
    try { await navigator.clipboard.writeText(text); } catch { return; }
    copy.classList.add('done');
    copy.setAttribute('aria-label', 'Copied');
    setTimeout(() => copy.classList.remove('done'), 1500);
    return;
  }
  if (e.target.closest('[data-fresh]')) { document.activeElement.blur(); refresh(); return; }
  const open = e.target.closest('[data-open]');
  if (open) { document.getElementById(open.dataset.open)?.showModal(); return; }
  if (e.target.closest('[data-close]') || e.target.tagName === 'DIALOG') { e.target.closest('dialog')?.close(); return; }
  const link = e.target.closest('[data-list][data-beside] a[href]');
  if (link && wide() && !e.metaKey && !e.ctrlKey && !e.shiftKey && e.button === 0) { e.preventDefault(); follow(link.href); }
});

document.addEventListener('change', (e) => { if (e.target.matches('[data-submit]')) e.target.form.requestSubmit(); });

// A form is sent once, however often somebody clicks.
let leaving;
document.addEventListener('submit', (e) => {
  if (e.target.dataset.sent || (going && e.target.closest('#slide'))) { e.preventDefault(); return; }
  if (e.target.method !== 'post') return;
  const sent = (it) => { e.target.dataset.sent = leaving = it; };
  sent('1');
  setTimeout(sent, 15000, '');
});

// Keys that are pressed before the page is there wait for it, unless they decide.
const early = [];
document.addEventListener('keydown', (e) => { if (document.readyState === 'loading') early.push(e); else pressed(e); });

function pressed(e, blind) {
  if (leaving) { if (/^E/.test(e.key)) e.preventDefault(); return; } // Escape stops
  const writing = e.target.matches('input:not([type=checkbox]), textarea, select');
  if (writing && e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
    const button = e.target.form && $('[data-enter]', e.target.form);
    if (button) { e.preventDefault(); e.target.form.requestSubmit(button); }
    return;
  }
  if (e.key === 'Escape' && writing) { e.target.blur(); return; }
  if (writing || e.ctrlKey || e.metaKey || e.altKey || $('dialog[open]')) return;
  const press = (selector) => {
    const it = $(selector);
    if (!it || (it.closest('#slide') && (going || blind))) return;
    e.preventDefault();
    const folded = it.closest('details');
    if (folded) folded.open = true;
    it.focus();
    it.scrollIntoView({ block: 'nearest' });
  };
  switch (e.key) {
    case 'j': select(1); break;
    case 'k': select(-1); break;
    case 'n': if ($('[data-fresh]')) $('[data-fresh]').click(); else press('[data-key-n]'); break;
    case 'x': { const row = rows().find((r) => $('[aria-current]', r)); const box = row && $('input[type=checkbox]', row); if (box) box.click(); break; }
    case '/': press('[data-key-search]'); break;
    case '?': document.getElementById('keys')?.showModal(); break;
    default: if (/^[a-z]$/.test(e.key)) press(`[data-key-${e.key}]`);
  }
}

document.addEventListener('DOMContentLoaded', () => {
  remember(document);
  awaken(document);
  tick();
  setInterval(tick, 5000);
  pin();
  settle();
  if (document.body.dataset.topics) stayLive();
  // Good news goes by itself; bad news stays.
  for (const note of $$('main > .flash:not(.bad)')) setTimeout(() => note.classList.add('over'), 6000);
  early.forEach((e) => pressed(e, true));
});
