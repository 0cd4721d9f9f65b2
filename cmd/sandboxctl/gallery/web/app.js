// The page's frame: what is shown follows from the address, #/CHAT or
// #/CHAT/ORDINAL, and from the store.
import { enter, get, link, of } from './api.js';
import { $, announce, h, toast } from './dom.js';
import { state, watch, current, follow, show, read } from './store.js';
import { drawCells } from './grid.js';
import { drawCommands } from './commands.js';
import { drawMeter } from './meter.js';
import { openPalette } from './palette.js';
import { closeViewer, showCell, refreshViewer } from './viewer.js';

const themes = { auto: 'Theme: automatic', light: 'Theme: light', dark: 'Theme: dark' };

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem('theme', theme);
  $('theme').textContent = themes[theme];
}

function drawChats() {
  const items = state.chats.map((c) => {
    const running = c.sandbox && !c.sandbox.idle_since;
    return h('li', {}, h('a', { href: `#/${of(c.id)}`, 'aria-current': c.id === state.chat ? 'page' : undefined, title: c.title || c.id },
      h('span', { class: 'name' }, c.title || c.id),
      running ? h('span', { class: 'busy', title: 'at work', role: 'img', 'aria-label': 'at work' }) : '',
      h('span', { class: 'count' }, String(c.cells), h('span', { class: 'unseen' }, ' cells'))));
  });
  const list = $('chats');
  const focused = list.contains(document.activeElement) ? document.activeElement.hash : null;
  list.replaceChildren(...items);
  if (focused) [...list.querySelectorAll('a')].find((a) => a.hash === focused)?.focus();
}

function draw(news) {
  const chat = current();
  document.title = chat ? `${chat.title || chat.id} · Gallery` : 'Gallery';
  $('title').textContent = chat ? chat.title || chat.id : 'Gallery';
  $('away').hidden = !state.away;
  if (state.away && $('away').textContent !== state.away) $('away').textContent = state.away;
  document.body.classList.toggle('is-away', !!state.away);
  $('export').hidden = state.cells.size === 0;
  if (chat) $('export').href = link(of('chats', chat.id, 'export'));
  drawChats();
  drawMeter();
  drawCommands();
  drawCells();
  refreshViewer();
  if (news?.cell) announce(`New cell #${news.cell.ordinal}: ${news.cell.file.file_name}`);
}

// route shows what the address names.
async function route() {
  const [chat, ordinal] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  if (chat && chat !== state.chat) await show(chat);
  const cell = state.cells.get(Number(ordinal));
  if (cell) showCell(cell);
  else closeViewer();
}

function onKey(e) {
  const typing = e.target.closest?.('input, textarea, select');
  if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey || e.key === 'k' && (e.ctrlKey || e.metaKey)) {
    e.preventDefault();
    openPalette();
  }
}

async function start() {
  setTheme(localStorage.getItem('theme') ?? 'auto');
  const order = Object.keys(themes);
  $('theme').addEventListener('click', () => setTheme(order[(order.indexOf(document.documentElement.dataset.theme) + 1) % order.length]));
  $('search').addEventListener('click', openPalette);
  $('export').addEventListener('click', () => toast('The archive is being downloaded'));
  document.addEventListener('keydown', onKey);
  window.addEventListener('hashchange', route);
  document.querySelector('.skip').addEventListener('click', (e) => {
    e.preventDefault();
    $('cells').focus();
  });
  watch(draw);
  state.chat = decodeURIComponent(location.hash.replace(/^#\/?/, '').split('/')[0]);
  try {
    state.info = await get('info');
    if (!state.chat) state.chat = state.info.chat;
  } catch (err) {
    state.away = err.message;
  }
  await read();
  await route();
  follow();
}

if (enter()) start();
