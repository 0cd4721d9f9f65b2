// What the page knows: chats, and of the one that is shown its cells and
// commands. It reads everything at the start and after it was away, and follows
// the events in between. What it is told may be older than what it read, so
// nothing goes back.
import { get, link, of } from './api.js';

export const state = {
  info: {}, chats: [], chat: '', loaded: false, away: '',
  cells: new Map(), // by ordinal
  commands: new Map(), // by id
  readAt: 0, // when the chat's clocks were read, in ms
};

const listeners = new Set();

// watch calls f after each change, with what happened: {cell} for a new one.
export const watch = (f) => listeners.add(f);
const changed = (news = {}) => listeners.forEach((f) => f(news));

export const current = () => state.chats.find((c) => c.id === state.chat);

const rank = { pending: 0, published: 1, lost: 2 };

function newer(a, b) {
  if (a.revision !== b.revision) return a.revision > b.revision;
  if (rank[a.state] !== rank[b.state]) return rank[a.state] > rank[b.state];
  return (a.previews?.length ?? 0) >= (b.previews?.length ?? 0);
}

function putCell(cell) {
  const known = state.cells.get(cell.ordinal);
  if (known && !newer(cell, known)) return false;
  state.cells.set(cell.ordinal, cell);
  return !known;
}

export const ended = (cmd) => cmd.state !== 'queued' && cmd.state !== 'running';

function putCommand(cmd) {
  const known = state.commands.get(cmd.id);
  if (known && ended(known) && !ended(cmd)) return;
  state.commands.set(cmd.id, { ...cmd, progress: cmd.progress ?? known?.progress });
}

async function readChats() {
  state.chats = await get('chats');
  state.readAt = Date.now();
}

// read reads everything that is shown.
export async function read() {
  const chat = state.chat;
  try {
    await readChats();
    if (!current()) state.chat = state.chats[0]?.id ?? '';
    if (state.chat) {
      const shown = state.chat;
      const [cells, commands] = await Promise.all([get(of('chats', shown, 'cells')), get(of('chats', shown, 'commands'))]);
      if (state.chat !== shown) return;
      cells.forEach(putCell);
      const there = new Set(cells.map((c) => c.ordinal));
      for (const n of state.cells.keys()) if (!there.has(n)) state.cells.delete(n);
      commands.forEach(putCommand);
    }
    state.loaded = true;
  } catch (err) {
    if (state.chat === chat) state.away = err.message;
  }
  changed();
}

// show changes to another chat.
export async function show(chat) {
  if (chat === state.chat) return;
  state.chat = chat;
  state.cells.clear();
  state.commands.clear();
  state.loaded = false;
  await read();
}

let soon;
// refresh reads the chats and their clocks again, once for what comes together.
function refresh() {
  clearTimeout(soon);
  soon = setTimeout(() => readChats().then(() => changed(), () => {}), 300);
}

function take(ev) {
  if (!state.chats.some((c) => c.id === ev.chat)) refresh();
  if (ev.chat !== state.chat) {
    if (ev.cell || ev.command) refresh();
    return;
  }
  let news = {};
  if (ev.type === 'cell.expired') state.cells.delete(ev.cell.ordinal);
  else if (ev.cell && putCell(ev.cell)) news = { cell: ev.cell };
  if (ev.command) putCommand(ev.command);
  if (ev.work) {
    const cmd = state.commands.get(ev.work.command);
    if (cmd) cmd.progress = ev.work;
  }
  if (ev.type !== 'command.progress') refresh();
  changed(news);
}

// follow keeps up with what happens, over every break of the line.
export function follow() {
  const source = new EventSource(link('events'));
  source.addEventListener('hello', (e) => {
    const { fresh, away } = JSON.parse(e.data);
    state.away = away;
    if (fresh || !state.loaded) read(); else changed();
  });
  source.addEventListener('daemon', (e) => {
    state.away = JSON.parse(e.data).away;
    if (state.away) changed(); else read();
  });
  source.addEventListener('event', (e) => take(JSON.parse(e.data)));
  source.onerror = () => {
    state.away = 'The gallery itself does not answer. Is `sandboxctl gallery` still running?';
    changed();
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  };
}

setInterval(() => { if (!state.away && !document.hidden) refresh(); }, 15000);
