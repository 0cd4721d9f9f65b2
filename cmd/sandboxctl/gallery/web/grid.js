// The grid: the newest cell first. A card is made again only when its cell
// changed, so that focus and pictures stay.
import { of, previewLink } from './api.js';
import { $, bytes, facts, h, icon, pillNames } from './dom.js';
import { state } from './store.js';

let pill = '';
const cards = new Map(); // ordinal to {version, el}
let drawnChat = '';

const version = (c) => `${c.revision} ${c.state} ${c.previews?.join() ?? ''} ${c.note ?? ''}`;

// fills tells whether a picture is nearly of the frame's shape: it may lose its
// edges for that.
const fills = (f) => f.width / f.height > 1.2 && f.width / f.height < 1.8;

function picture(cell) {
  const kinds = cell.previews ?? [];
  if (kinds.includes('thumb')) return h('img', { class: fills(cell.file) ? 'fills' : undefined, src: previewLink(cell, 'thumb'), alt: '', loading: 'lazy', decoding: 'async' });
  if (kinds.includes('wave')) {
    const wave = h('span', { class: 'wave' });
    wave.style.setProperty('--wave', `url("${previewLink(cell, 'wave')}")`);
    return wave;
  }
  const dot = cell.file.file_name.lastIndexOf('.');
  return h('span', { class: 'plain' }, icon(cell.pill), h('span', {}, dot > 0 ? cell.file.file_name.slice(dot + 1, dot + 7) : ''));
}

// strip lets the pointer run over a video's pictures.
function strip(cell, frame) {
  if (!cell.previews?.includes('strip')) return;
  const el = h('span', { class: 'scrub', 'aria-hidden': 'true' });
  let loaded = false;
  frame.addEventListener('pointermove', (e) => {
    if (e.pointerType === 'touch') return;
    if (!loaded) el.style.setProperty('--strip', `url("${previewLink(cell, 'strip')}")`);
    loaded = true;
    const box = frame.getBoundingClientRect();
    const n = Math.min(7, Math.floor(8 * (e.clientX - box.left) / box.width));
    el.style.setProperty('--at', `${n * 100 / 7}%`);
    el.classList.add('shown');
  });
  frame.addEventListener('pointerleave', () => el.classList.remove('shown'));
  const { width, height } = cell.file;
  if (width) el.style.setProperty('--ratio', width / height);
  frame.append(el);
}

function card(cell) {
  const { file } = cell;
  const frame = h('span', { class: 'frame' }, picture(cell));
  strip(cell, frame);
  if (cell.pill === 'video-edit' && file.duration) frame.append(h('span', { class: 'length' }, icon('play'), facts(file).at(-1)));
  const status = { pending: 'being stored', lost: 'lost' }[cell.state];
  return h('li', { class: `card ${cell.state}`, 'data-ordinal': cell.ordinal },
    h('a', { href: `#/${of(cell.chat, cell.ordinal)}` }, frame,
      h('span', { class: 'line' }, h('span', { class: 'ordinal' }, `#${cell.ordinal}`), h('span', { class: 'file', title: file.file_name }, file.file_name)),
      h('span', { class: 'facts' }, h('span', { class: 'pill' }, icon(cell.pill), pillNames[cell.pill]),
        ...[...facts(file).slice(0, 1), bytes(file.file_size)].map((t) => h('span', {}, t)),
        cell.revision > 1 ? h('span', {}, `revision ${cell.revision}`) : '', status ? h('span', { class: 'status' }, status) : '')));
}

function drawPills(cells) {
  const counts = new Map();
  cells.forEach((c) => counts.set(c.pill, (counts.get(c.pill) ?? 0) + 1));
  if (!counts.has(pill)) pill = '';
  const box = $('pills');
  const sign = [...counts].join() + pill;
  if (box.dataset.sign === sign) return;
  box.dataset.sign = sign;
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.pill : null;
  const button = (value, name, count) => h('button', {
    type: 'button', 'data-pill': value, 'aria-pressed': String(pill === value),
    onclick: () => { pill = value; drawCells(); },
  }, name, h('span', {}, String(count)));
  const kinds = Object.keys(pillNames).filter((p) => counts.has(p));
  box.replaceChildren(...(kinds.length > 1 ? [button('', 'All', cells.length), ...kinds.map((p) => button(p, pillNames[p], counts.get(p)))] : []));
  if (focused !== null) box.querySelector(`[data-pill="${focused}"]`)?.focus();
}

// shown lists the cells in the order of the grid.
export function shown() {
  return [...state.cells.values()].filter((c) => !pill || c.pill === pill).sort((a, b) => b.ordinal - a.ordinal);
}

export function drawCells() {
  if (drawnChat !== state.chat) {
    cards.clear();
    pill = '';
    drawnChat = state.chat;
    $('cells').replaceChildren();
  }
  drawPills([...state.cells.values()]);
  const list = $('cells');
  const wanted = shown().map((cell) => {
    const known = cards.get(cell.ordinal);
    if (known?.version === version(cell)) return known.el;
    const el = card(cell);
    if (known?.el.isConnected) {
      const focused = known.el.contains(document.activeElement);
      known.el.replaceWith(el);
      if (focused) el.querySelector('a').focus();
    } else if (state.loaded && list.childElementCount) {
      el.classList.add('fresh');
    }
    cards.set(cell.ordinal, { version: version(cell), el });
    return el;
  });
  const keep = new Set(wanted);
  [...list.children].forEach((el) => { if (!keep.has(el)) el.remove(); });
  wanted.forEach((el, i) => { if (list.children[i] !== el) list.insertBefore(el, list.children[i] ?? null); });
  const empty = $('empty');
  empty.hidden = wanted.length > 0 || !state.loaded;
  empty.textContent = state.chat ? 'Nothing yet. Files that a command leaves in /outputs appear here by themselves.' : 'There is no chat yet.';
}
