// Commands: those that run, with their progress and output, and the last that
// ended.
import { link, of, post } from './api.js';
import { $, clock, h, sentence, toast, what } from './dom.js';
import { ended, state } from './store.js';

// maxShown is how much of a command's output stands on the page, in letters.
const maxShown = 60000;

const rows = new Map(); // id to parts of a row

// follow streams a command's output into el, and returns how to stop it. A
// line that breaks begins again from the start.
function follow(cmd, el) {
  const source = new EventSource(link(of('chats', cmd.chat, 'commands', cmd.id, 'output')));
  const decoders = {};
  source.onopen = () => el.replaceChildren();
  source.addEventListener('output', (e) => {
    const { stream, data } = JSON.parse(e.data);
    decoders[stream] ??= new TextDecoder();
    const text = decoders[stream].decode(Uint8Array.from(atob(data), (c) => c.charCodeAt(0)), { stream: true });
    const down = el.scrollHeight - el.scrollTop - el.clientHeight < 40;
    el.append(h('span', { class: stream }, text));
    for (let length = el.textContent.length; length > maxShown && el.childElementCount > 1;) {
      length -= el.firstChild.textContent.length;
      el.firstChild.remove();
    }
    if (down) el.scrollTop = el.scrollHeight;
  });
  const close = () => {
    source.close();
    if (!el.childNodes.length) el.append('It printed nothing.');
  };
  source.addEventListener('command', close);
  source.addEventListener('fault', (e) => {
    el.append(h('span', { class: 'stderr' }, JSON.parse(e.data).message));
    source.close();
  });
  return () => source.close();
}

function outputOf(cmd) {
  const text = h('pre', { class: 'output', tabIndex: 0, 'aria-label': `Output of ${what(cmd)}` });
  let stop = () => {};
  const box = h('details', {
    class: 'out',
    ontoggle: () => {
      stop();
      if (box.open) stop = follow(cmd, text);
    },
  }, h('summary', {}, 'Output'), text);
  return { box, stop: () => stop() };
}

async function cancel(cmd, button) {
  button.disabled = true;
  try {
    await post(of('chats', cmd.chat, 'commands', cmd.id, 'cancel'));
    toast('The command is being canceled');
  } catch (err) {
    toast(err.message);
    button.disabled = false;
  }
}

function makeRow(cmd) {
  const button = h('button', { type: 'button', class: 'small', 'aria-label': `Cancel ${what(cmd)}`, onclick: () => cancel(cmd, button) }, 'Cancel');
  const bar = h('progress', { max: 100, 'aria-label': `Progress of ${what(cmd)}` });
  const status = h('span', { class: 'status' });
  const out = outputOf(cmd);
  const el = h('li', { class: 'command', 'data-command': cmd.id },
    h('div', { class: 'head' }, h('code', { title: what(cmd) }, what(cmd)), status, button), bar, out.box);
  return { el, bar, status, button, out };
}

// progress words how far a command is.
function progress(cmd) {
  const p = cmd.progress;
  if (cmd.state === 'queued') return cmd.queue_place ? `queued, place ${cmd.queue_place}` : 'queued';
  const ran = cmd.started_at ? clock((Date.now() - new Date(cmd.started_at)) / 1000) : '0:00';
  if (!p) return ran;
  const parts = [];
  if (p.stage) parts.push(p.stage);
  if (p.percent !== undefined) parts.push(`${Math.round(p.percent)} %`);
  else if (p.frame) parts.push(`frame ${p.frame}`);
  if (p.eta !== undefined) parts.push(`${clock(p.eta)} left`);
  else parts.push(ran);
  return parts.join(' · ');
}

function update(row, cmd) {
  row.status.textContent = progress(cmd);
  const percent = cmd.progress?.percent;
  if (percent === undefined) row.bar.removeAttribute('value');
  else row.bar.value = percent;
  row.bar.classList.toggle('waiting', cmd.state === 'queued');
}

function endedRow(cmd) {
  const out = outputOf(cmd);
  const took = cmd.started_at && cmd.ended_at ? clock((new Date(cmd.ended_at) - new Date(cmd.started_at)) / 1000) : '';
  const good = cmd.state === 'succeeded';
  const el = h('li', { class: `command ${good ? '' : 'bad'}`, 'data-command': cmd.id },
    h('div', { class: 'head' }, h('code', { title: what(cmd) }, what(cmd)),
      h('span', { class: 'status' }, [sentence(cmd.state), cmd.exit_code ? `exit ${cmd.exit_code}` : '', took].filter(Boolean).join(' · '))),
    !good && cmd.reason ? h('p', { class: 'reason' }, cmd.reason) : '', out.box);
  return { el, out, state: cmd.state };
}

// place makes a list hold these rows in this order, and touches no others.
function place(list, wanted) {
  const keep = new Set(wanted);
  [...list.children].forEach((el) => { if (!keep.has(el)) el.remove(); });
  wanted.forEach((el, i) => { if (list.children[i] !== el) list.insertBefore(el, list.children[i] ?? null); });
}

export function drawCommands() {
  const all = [...state.commands.values()];
  const now = all.filter((c) => !ended(c));
  const past = all.filter(ended).sort((a, b) => (a.created_at < b.created_at ? 1 : -1)).slice(0, 40);
  for (const [id, row] of rows) {
    const cmd = state.commands.get(id);
    if (!cmd || row.state === undefined && ended(cmd)) {
      row.out.stop();
      rows.delete(id);
    }
  }
  const rowOf = (cmd, make) => rows.get(cmd.id) ?? rows.set(cmd.id, make(cmd)).get(cmd.id);
  place($('running'), now.map((cmd) => {
    const row = rowOf(cmd, makeRow);
    update(row, cmd);
    return row.el;
  }));
  place($('ended'), past.map((cmd) => rowOf(cmd, endedRow).el));
  $('work').hidden = now.length === 0;
  $('past').hidden = past.length === 0;
  $('past-count').textContent = past.length;
}

setInterval(() => {
  for (const [id, row] of rows) if (row.bar && state.commands.has(id)) update(row, state.commands.get(id));
}, 1000);
