// The page's one script. It shows what the broker renders, keeps the token of
// this page in memory, and sends decisions with the digests of the cards that
// stand on the screen. It stores nothing and asks nobody else.
import * as passkey from './passkey.js';

(() => {
  const $ = (s, at = document) => at.querySelector(s), all = (s, at = document) => [...at.querySelectorAll(s)];
  const policy = window.trustedTypes ? trustedTypes.createPolicy('yett', { createHTML: (s) => s }) : { createHTML: (s) => s };
  const view = $('#view');
  const firstSecond = 1000, keyPause = 300, beat = 10000;
  let token = '', news = null, lost = false, lastKey = 0, hurried = false, shown = 0, generation = 0, stream = null, refreshing = false, stale = false;

  // What is asked of the broker.
  const b64 = (bytes) => btoa(Array.from(new Uint8Array(bytes), (b) => String.fromCharCode(b)).join(''));
  const bytesOf = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
  const phraseOf = (text) => b64(new TextEncoder().encode(text));
  class Refused extends Error { constructor(e, status) { super([e.message, e.next_step].filter(Boolean).join(' ')); this.code = e.code; this.status = status; } }
  async function send(path, body) {
    const headers = token ? { Authorization: 'Bearer ' + token } : {};
    const options = { headers, cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer' };
    if (body !== undefined) { options.method = 'POST'; headers['Content-Type'] = 'application/json'; options.body = JSON.stringify(body); }
    const r = await fetch(path, options);
    if (!r.ok) {
      const e = await r.json().catch(() => ({ error: { message: 'The console refused this.' } }));
      throw new Refused(e.error, r.status);
    }
    return r;
  }
  const post = async (path, body) => (await send(path, body)).json();
  const parse = (html) => { const t = document.createElement('template'); t.innerHTML = policy.createHTML(html); return t.content; };
  const fragment = async (path) => parse(await (await send(path)).text());
  const tell = (text) => { $('#told').textContent = text; clearTimeout(tell.timer); tell.timer = setTimeout(() => { $('#told').textContent = ''; }, 6000); };

  // Time, as it stands on cards.
  const clock = (at) => { const d = new Date(at); return [d.getHours(), d.getMinutes()].map((n) => String(n).padStart(2, '0')).join(':'); };
  function left(at) {
    const s = Math.max(0, Math.round((new Date(at) - Date.now()) / 1000));
    return s >= 90 ? Math.round(s / 60) + ' min' : s + ' s';
  }
  setInterval(() => { for (const t of all('.cards time')) t.textContent = ' · ' + left(t.dateTime); }, 1000);

  // News: numbers come by themselves, content only when it is asked for.
  async function listen() {
    for (let wait = 300; ;) {
      const mine = new AbortController();
      stream = mine;
      let watchdog = setTimeout(() => mine.abort(), beat);
      try {
        const r = await fetch('/events', { headers: token ? { Authorization: 'Bearer ' + token } : {}, signal: mine.signal, cache: 'no-store', credentials: 'omit' });
        if (r.status === 401) { token = ''; continue; }
        if (!r.ok) throw new Error('no stream');
        const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = '';
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          clearTimeout(watchdog);
          watchdog = setTimeout(() => mine.abort(), beat);
          text += value;
          for (let i; (i = text.indexOf('\n\n')) >= 0; text = text.slice(i + 2)) {
            const line = text.slice(0, i);
            if (line.startsWith('data: ')) { wait = 300; heard(JSON.parse(line.slice(6))); }
          }
        }
      } catch (e) { /* the connection ended, or was ended to begin again */ }
      clearTimeout(watchdog);
      if (stream !== mine) continue;
      if (!mine.signal.aborted || news) connection(true);
      await new Promise((go) => setTimeout(go, wait));
      wait = Math.min(wait * 2, 3000);
    }
  }
  function again() { const old = stream; stream = null; if (old) old.abort(); }
  function connection(gone) {
    lost = gone;
    $('#lost').hidden = !gone;
    document.body.classList.toggle('offline', gone);
    guard();
  }
  function heard(n) {
    const before = news, back = lost; // what changed while nothing was heard was told to nobody
    news = n;
    if (back) connection(false);
    const state = $('#state');
    state.textContent = n.state === 'locked' && n.paused ? 'locked, ' + n.paused + ' paused' : n.state;
    state.className = 'pill ' + n.state;
    $('#lock').hidden = n.state === 'locked';
    const count = $('#count');
    count.hidden = !n.pending;
    count.textContent = n.pending;
    document.title = (n.pending ? '(' + n.pending + ') ' : '') + 'Yett';
    if (before && before.instance !== n.instance) { token = ''; again(); }
    const open = token && n.reading && n.state !== 'locked';
    const was = view.dataset.open === 'true';
    if (!before || open !== was || (!open && (n.state !== before.state || n.pending !== before.pending))) return show();
    if (!open) return;
    if (here() === 'waiting' && (back || n.queue !== before.queue)) return refresh();
    if (here() === 'sessions' && n.sessions + n.paused !== before.sessions + before.paused) return show();
  }

  // Views.
  const here = () => (location.hash.slice(1).split('/')[0] || 'waiting');
  function place(content) {
    view.replaceChildren(content);
    view.setAttribute('aria-busy', 'false');
  }
  async function show(query = '') {
    const mine = ++generation, name = here();
    for (const a of all('nav a')) a.hash === '#' + name || (name === 'operation' && a.hash === '#activity') ? a.setAttribute('aria-current', 'page') : a.removeAttribute('aria-current');
    const open = token && news && news.reading && news.state !== 'locked';
    view.dataset.open = String(!!open);
    if (!open) return gate(mine);
    const path = name === 'operation' ? 'operation?id=' + encodeURIComponent(location.hash.split('/')[1] || '') : name + query;
    view.setAttribute('aria-busy', 'true');
    try {
      const content = await fragment('/view/' + path);
      if (mine !== generation) return;
      place(content);
      if (name === 'waiting') startWaiting();
      if (name === 'access') startAccess();
    } catch (e) {
      if (mine !== generation) return;
      if (e.status === 401) { news.reading = false; return show(); }
      const p = document.createElement('section');
      p.className = 'middle';
      p.innerHTML = policy.createHTML('<h1>Not now</h1><p></p>');
      $('p', p).textContent = e instanceof Refused ? e.message : 'The broker did not answer.';
      place(p);
    }
  }

  // The gate: what stands here before a proof.
  async function gate(mine) {
    if ($('[data-open] input:focus', view) && news) return peek(); // nobody is interrupted while typing
    const g = $('#gate').content.cloneNode(true), locked = !news || news.state === 'locked';
    $('[data-title]', g).textContent = locked ? 'Yett is locked' : 'Show yourself first';
    $('[data-text]', g).textContent = locked ? 'Your passphrase unlocks it' + (news && news.paused ? ' and resumes the paused sessions.' : '.')
      : 'A proof opens this page for a quarter of an hour. Each decision asks for one of its own.';
    $('[data-go]', g).textContent = locked ? 'Unlock' : 'Open';
    const form = $('form', g), key = $('[data-passkey]', g);
    if (!locked) offer([key]);
    form.addEventListener('submit', (e) => { e.preventDefault(); proven(form, () => ({ phrase: phraseOf(form.phrase.value) })); });
    key.addEventListener('click', () => proven(form, async () => {
      const c = await post('/challenge', {});
      if (c.token) token = c.token;
      return gestureOf(c);
    }));
    if (mine !== generation) return;
    place(g);
    return peek();
  }
  async function peek() {
    const at = $('[data-peek]', view);
    if (!at || !news || !news.pending || news.state === 'locked') return at && at.replaceChildren();
    try { at.replaceChildren(await fragment('/view/waiting')); } catch (e) { /* the numbers stand in the bar */ }
  }
  async function proven(form, gesture) {
    await busy(form, async () => {
      const r = await post('/open', await gesture());
      token = r.token;
      form.reset();
      if (r.told.length) tell(r.told.join(' '));
      news = null;
      again();
    });
  }
  async function busy(form, work) {
    const error = $('[data-error]', form), buttons = all('button', form);
    error.textContent = '';
    form.classList.add('busy');
    for (const b of buttons) b.disabled = true;
    try { await work(); } catch (e) {
      error.textContent = e instanceof Refused ? e.message : e instanceof DOMException ? passkey.words(e) : 'It did not work: ' + e.message;
      const field = $('input[type=password]', form);
      if (field) { field.value = ''; field.focus(); }
    } finally {
      form.classList.remove('busy');
      for (const b of buttons) b.disabled = false;
      guard();
    }
  }

  // Passkeys. A button for one is shown where there is one to ask for.
  let known = false;
  async function offer(buttons, wanted = () => true) {
    const set = () => { for (const b of buttons) b.hidden = !known || !wanted(); };
    set();
    if (!passkey.usable()) return;
    try { known = (await (await send('/passkeys')).json()).any; } catch (e) { return; }
    set();
  }
  async function gestureOf(asked) { return { nonce: asked.nonce, assertion: await passkey.get(asked) }; }

  // Waiting. A line keeps its place, and a card that is shown never changes: what
  // is settled elsewhere is marked where it stands.
  let selected = [], blank = null;
  function startWaiting() {
    selected = [];
    blank = $('[data-detail] .blank', view);
    const list = $('[data-lines]', view);
    list.addEventListener('click', (e) => {
      const li = e.target.closest('li');
      if (!li) return;
      if (e.target.closest('[data-show]')) { for (const c of all('input:checked', list)) c.checked = false; choose([li.dataset.id]); }
    });
    list.addEventListener('change', () => {
      const ids = all('li', list).filter((li) => $('input', li).checked && !li.classList.contains('gone')).map((li) => li.dataset.id);
      choose(ids);
    });
    $('[data-tidy]', view).addEventListener('click', (e) => {
      for (const li of all('li.gone', list)) li.remove();
      e.target.hidden = true;
      $('[data-empty]', view).hidden = !!$('li', list);
      const left = selected.filter((id) => $('li[data-id="' + CSS.escape(id) + '"]', list));
      if (left.length < selected.length) choose(left);
      view.focus({ preventScroll: true }); // what had the focus has gone
    });
    const clicks = $('[data-clicks]', view);
    if (clicks) {
      const open = (gesture) => busy(clicks, async () => {
        const r = await post('/clicks', await gesture());
        tell('For ' + r.minutes + ' minutes a click decides about what only reads.');
        show();
      });
      offer([$('[data-key]', clicks)]);
      $('[data-key]', clicks).addEventListener('click', () => open(async () => gestureOf(await post('/challenge', { clicks: true }))));
      clicks.addEventListener('submit', (e) => { e.preventDefault(); if (clicks.phrase.value) open(() => ({ phrase: phraseOf(clicks.phrase.value) })); });
    }
    const wanted = location.hash.split('/')[1], first = $('li', list);
    if (wanted && $('li[data-id="' + CSS.escape(wanted) + '"]', list)) choose([wanted]);
    else if (first && matchMedia('(min-width: 52rem)').matches) choose([first.dataset.id]);
  }
  // One at a time, so that no older answer follows a newer one; one that failed is made again.
  async function refresh() {
    if (refreshing) { stale = true; return; }
    refreshing = true;
    try {
      do {
        stale = false;
        if (await update()) continue;
        stale = true;
        await new Promise((go) => setTimeout(go, 1000));
      } while (stale);
    } finally { refreshing = false; }
  }
  async function update() { // false: try again
    const mine = generation;
    let fresh;
    try { fresh = await fragment('/view/waiting'); } catch (e) {
      if (e.status === 401) show();
      return e.status === 401 || mine !== generation;
    }
    const list = $('[data-lines]', view);
    if (mine !== generation || !$('[data-lines]', fresh)) return true;
    if (!list) return here() !== 'waiting'; // the view is being fetched, maybe from before this change
    const now = new Map(all('[data-lines] li', fresh).map((li) => [li.dataset.id, li]));
    for (const li of all('li', list)) {
      if (now.has(li.dataset.id)) now.delete(li.dataset.id);
      else if (!li.classList.contains('gone')) settle(li.dataset.id, 'no longer waits');
    }
    const empty = !$('li', list);
    for (const li of now.values()) list.append(li);
    $('[data-empty]', view).hidden = !!$('li', list);
    $('[data-total]', view).textContent = $('[data-total]', fresh).textContent;
    if (empty && now.size && !selected.length && matchMedia('(min-width: 52rem)').matches) choose([now.keys().next().value]);
    return true;
  }
  function settle(id, words) {
    const li = $('.cards li[data-id="' + CSS.escape(id) + '"]', view), card = $('.card[data-card="' + CSS.escape(id) + '"]', view);
    if (li) { li.classList.add('gone'); $('.sub', li).textContent = words; $('input', li).disabled = true; $('input', li).checked = false; $('[data-tidy]', view).hidden = false; }
    if (card) { card.classList.add('gone'); card.dataset.words = words; }
    guard();
  }
  async function choose(ids) {
    selected = ids;
    const mine = ids.join(), detail = $('[data-detail]', view);
    for (const li of all('.cards li', view)) li.classList.toggle('on', ids.includes(li.dataset.id));
    let cards;
    try { cards = await Promise.all(ids.map((id) => fragment('/view/card?id=' + encodeURIComponent(id)))); } catch (e) {
      if (e.status === 401) return show();
      tell(e.message);
      return refresh();
    }
    if (mine !== selected.join() || !detail.isConnected) return;
    if (!ids.length) return detail.replaceChildren(blank);
    detail.replaceChildren(...cards);
    detail.append(decider(detail));
    detail.scrollTop = 0;
    shown = performance.now();
    guard();
    setTimeout(guard, firstSecond + 20);
  }
  function decider(detail) {
    const cards = () => all('.card:not(.gone)', detail), n = all('.card', detail).length, many = n > 1 ? ' all ' + n : '';
    const once = all('.card', detail).some((c) => c.dataset.single === 'true' || c.dataset.each === 'true');
    const box = parse(`<form class="decide" aria-label="Decision" autocomplete="off">
      <p class="settled" role="status" hidden></p>
      <div class="first"><button type="button" class="plain" data-deny>Deny</button><span class="gap"></span>
        <button type="button" data-once data-yes>Allow once…</button>
        <button type="button" data-for data-yes>Allow for a time…</button></div>
      <div class="second" hidden><p class="about"></p><div class="row"><label class="for" hidden>For <select name="minutes" aria-label="Length"><option value="15">15 minutes</option><option value="30" selected>30 minutes</option><option value="60">1 hour</option><option value="240">4 hours</option><option value="480">8 hours</option></select></label>
        <input name="phrase" type="password" placeholder="Passphrase" aria-label="Passphrase" autocomplete="off" spellcheck="false" data-1p-ignore data-lpignore="true">
        <button type="submit" class="primary" data-yes></button><button type="button" data-key data-yes>Passkey</button><button type="button" class="quiet" data-back>Back</button></div></div>
      <p class="error" role="alert" data-error></p></form>`);
    const form = $('form', box), second = $('.second', form), first = $('.first', form);
    const byClick = () => cards().every((c) => c.dataset.click === 'true');
    let choice = '';
    $('[data-deny]', form).textContent = 'Deny' + many;
    $('[data-once]', form).textContent = 'Allow' + many + ' once…';
    $('[data-for]', form).hidden = once;
    offer([$('[data-key]', form)], () => !choice || !byClick());
    const step = (c) => {
      choice = c;
      first.hidden = !!c;
      second.hidden = !c;
      $('.for', form).hidden = c !== 'until';
      $('.about', form).textContent = cards().map((k) => k.dataset.about).join(' · ');
      $('[type=submit]', form).textContent = c === 'until' ? 'Allow for this time' : 'Allow' + many + ' once';
      form.phrase.hidden = byClick();
      $('[data-key]', form).hidden = byClick() || !known;
      if (c) form.phrase.focus(); else form.phrase.value = '';
    };
    $('[data-once]', form).addEventListener('click', () => {
      if (!ready()) return;
      if (!byClick()) return step('once');
      choice = 'once';
      decide(() => ({ click: true }));
    });
    $('[data-for]', form).addEventListener('click', () => ready() && step('until'));
    $('[data-back]', form).addEventListener('click', () => { step(''); $('[data-error]', form).textContent = ''; });
    form.addEventListener('keydown', (e) => { if (e.key === 'Escape') step(''); });
    const what = () => ({ cards: cards().map((c) => ({ approval_id: c.dataset.card, card_digest: c.dataset.digest })), choice, minutes: choice === 'until' ? Number(form.minutes.value) : 0 });
    const decide = (gesture) => busy(form, async () => {
      const d = what();
      d.gesture = await gesture(d);
      const { results } = await post('/decide', d);
      step('');
      report(form, results, 'allowed', d.choice);
    });
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      if (choice && ready() && byClick()) return decide(() => ({ click: true }));
      if (choice && ready() && form.phrase.value) decide(() => ({ phrase: phraseOf(form.phrase.value) }));
    });
    $('[data-key]', form).addEventListener('click', () => choice && ready() && decide(async (d) => {
      const c = await post('/challenge', { decision: d });
      if (c.until) d.until = c.until;
      return gestureOf(c);
    }));
    $('[data-deny]', form).addEventListener('click', () => busy(form, async () => {
      const { results } = await post('/deny', { approval_ids: cards().map((c) => c.dataset.card) });
      report(form, results, 'denied');
    }));
    return box;
  }
  // What was given, and until when. A card that was refused and waits stays as it is.
  function report(form, results, verb, choice) {
    const words = (r) => verb + (r.until ? ' until ' + clock(r.until) : choice ? ' ' + choice : '');
    const given = results.filter((r) => r.done), refused = results.filter((r) => !r.done);
    const tag = (r) => $('.card[data-card="' + CSS.escape(r.approval_id) + '"] .tag', view)?.textContent || 'The card';
    $('[data-error]', form).textContent = refused.map((r) => tag(r) + ' was not ' + verb + '. ' + r.message).join(' ');
    for (const r of results) if (!r.waits) settle(r.approval_id, r.done ? words(r) : 'no longer waits');
    if (!given.length) return;
    const all = [...new Set(given.map(words))], ends = given.map((r) => r.until).sort();
    tell((results.length === 1 ? 'The card was ' : (refused.length ? given.length + ' of ' + results.length : given.length) + ' cards were ')
      + (all.length === 1 ? all[0] : verb + ', the first until ' + clock(ends[0]) + ', the last until ' + clock(ends.at(-1))) + '.');
  }
  // A yes is possible when the card has stood for a second and no keys are still
  // arriving that were meant for something else.
  const ready = () => !lost && performance.now() - shown >= firstSecond;
  function guard() {
    const form = $('.decide', view);
    if (!form || form.classList.contains('busy')) return;
    const cards = all('.card', view), waiting = cards.filter((c) => !c.classList.contains('gone'));
    const off = !ready() || !waiting.length;
    for (const b of all('[data-yes]', form)) b.disabled = off;
    $('[data-deny]', form).disabled = lost || !waiting.length;
    const said = $('.settled', form);
    said.hidden = waiting.length === cards.length;
    said.textContent = cards.filter((c) => c.dataset.words).map((c) => $('.tag', c).textContent + ': ' + c.dataset.words).join(' · ');
    if (!waiting.length) { $('.first', form).hidden = true; $('.second', form).hidden = true; }
  }
  document.addEventListener('keydown', (e) => {
    hurried = !e.target.closest('input') && (e.repeat || e.timeStamp - lastKey < keyPause);
    lastKey = e.timeStamp;
  }, true);
  document.addEventListener('click', (e) => { // detail is 0 for a click that a key made
    if (!e.detail && hurried && e.target.closest('[data-yes]')) { e.preventDefault(); e.stopImmediatePropagation(); }
  }, true);

  // Access.
  function startAccess() {
    const test = $('[data-test]', view), secret = $('[data-secret]', view), key = $('form[data-passkey]', view);
    if (test) {
      const kind = () => { for (const l of all('[data-of]', test)) l.hidden = l.dataset.of !== test.capability.selectedOptions[0].dataset.kind; };
      test.capability.addEventListener('change', kind);
      kind();
      test.addEventListener('submit', async (e) => {
        e.preventDefault();
        const out = $('output', test);
        try {
          const fields = all('[name]', test).filter((f) => !f.closest('[hidden]') && f.name !== 'capability');
          const r = await post('/test', { capability: test.capability.value, action: Object.fromEntries(fields.map((f) => [f.name, f.value])) });
          out.textContent = r.allowed ? 'Within. Asked ' + (r.confirm === 'each' ? 'for each action.' : 'once for a session.') : 'Outside: ' + r.message + '.';
          out.className = r.allowed ? 'good' : 'warn';
        } catch (x) { out.textContent = x.message; out.className = 'warn'; }
      });
    }
    if (secret) {
      const store = (gesture) => busy(secret, async () => {
        const value = secret.elements.value, chosen = secret.elements.name;
        if (!value.value) throw new Error('there is no value to store.');
        const what = { name: chosen.value, rotate: chosen.selectedOptions[0].dataset.set === 'true' };
        await post('/secret', { for: what, value: phraseOf(value.value.replace(/\n$/, '')), gesture: await gesture(what) });
        secret.reset();
        tell('The value was stored.');
        show();
      });
      offer([$('[data-key]', secret)]);
      $('[data-key]', secret).addEventListener('click', () => store(async (value) => gestureOf(await post('/challenge', { value }))));
      secret.addEventListener('submit', (e) => { e.preventDefault(); if (secret.phrase.value) store(() => ({ phrase: phraseOf(secret.phrase.value) })); });
    }
    if (key) key.addEventListener('submit', (e) => {
      e.preventDefault();
      const name = key.elements.name.value;
      busy(key, async () => {
        const c = await post('/passkey/begin', { name });
        await post('/passkey/add', { add: await passkey.create(c, name), nonce: c.nonce, phrase: phraseOf(key.phrase.value) });
        tell('The passkey was added.');
        show();
      });
    });
  }

  // A piece of what an action brought back. It comes escaped, as everything does.
  async function showBody(button) {
    const at = $('[data-piece]', button.closest('.came')), { body, id, from } = button.dataset;
    try {
      at.replaceChildren(await fragment('/view/body?' + new URLSearchParams({ id, stream: body, from })));
      const text = $('pre', at);
      if (text) text.focus({ preventScroll: true });
    } catch (x) {
      if (x.status === 401) return show();
      at.replaceChildren(Object.assign(document.createElement('p'), { className: 'error', textContent: x.message }));
    }
  }

  // What is the same in every view.
  view.addEventListener('click', async (e) => {
    const body = e.target.closest('[data-body]'), revoke = e.target.closest('[data-revoke]'), older = e.target.closest('[data-older]'), remove = e.target.closest('[data-remove]');
    if (revoke) {
      revoke.disabled = true;
      try { await post('/revoke', { session_id: revoke.dataset.revoke }); tell('The session was revoked.'); } catch (x) { tell(x.message); }
      show();
    }
    if (body) showBody(body);
    if (older) { e.preventDefault(); show('?before=' + older.dataset.older); scrollTo(0, 0); }
    if (remove && !$('form', remove.parentElement)) {
      const form = parse('<form class="inline" autocomplete="off"><input name="phrase" type="password" required placeholder="Passphrase" aria-label="Passphrase" autocomplete="off" data-1p-ignore><button type="submit" class="danger small">Remove</button><p class="error" role="alert" data-error></p></form>').firstChild;
      remove.replaceWith(form);
      form.phrase.focus();
      form.addEventListener('submit', (s) => { s.preventDefault(); busy(form, async () => { await post('/passkey/remove', { name: remove.dataset.remove, phrase: phraseOf(form.phrase.value) }); tell('The passkey was removed.'); show(); }); });
    }
  });
  view.addEventListener('submit', (e) => {
    if (!e.target.matches('[data-filter]')) return;
    e.preventDefault();
    show('?' + new URLSearchParams(new FormData(e.target)));
  });
  $('#lock').addEventListener('click', async () => { try { await post('/lock', { pause: true }); token = ''; again(); } catch (e) { tell(e.message); } });
  addEventListener('hashchange', () => { show(); view.focus({ preventScroll: true }); });
  addEventListener('pagehide', () => { token = ''; view.replaceChildren(); again(); });
  addEventListener('pageshow', (e) => { if (e.persisted) { news = null; again(); } });
  listen();
})();
