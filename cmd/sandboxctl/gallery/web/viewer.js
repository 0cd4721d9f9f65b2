// One cell: its stage, and beside it what is known of it and what can be done.
import { cellPath, contentLink, get, of, post } from './api.js';
import { $, bytes, copy, h, icon, pillNames, toast } from './dom.js';
import { state } from './store.js';
import { shown } from './grid.js';
import { stage } from './stage.js';
import { provenanceView } from './provenance.js';

let cell; // that is shown
let drawn = '';
let opener; // what had the focus before
let controls; // of the stage

const version = (c) => `${c.chat} ${c.ordinal} ${c.revision} ${c.state} ${c.previews?.join() ?? ''}`;
const home = (chat) => `#/${of(chat)}`;

function row(name, ...value) { return [h('dt', {}, name), h('dd', {}, ...value)]; }

function factList() {
  const f = cell.file;
  const rows = [row('Kind', pillNames[cell.pill]), row('Type', f.content_type), row('Size', bytes(f.file_size))];
  if (f.width) rows.push(row('Dimensions', `${f.width} × ${f.height}${f.has_alpha ? ', with alpha' : ''}`));
  if (f.duration) rows.push(row('Length', `${f.duration.toFixed(2)} s${f.fps ? `, ${Number(f.fps.toFixed(2))} fps` : ''}`));
  const codecs = [f.video_codec, f.audio_codec, f.pixel_format].filter(Boolean).join(', ');
  if (codecs) rows.push(row('Codec', codecs));
  if (cell.label) rows.push(row('Label', cell.label));
  if (cell.revision > 1) rows.push(row('Revision', String(cell.revision)));
  rows.push(row('Made', new Date(cell.created_at).toLocaleString()));
  if (f.expires_at) rows.push(row('Kept until', new Date(f.expires_at).toLocaleString()));
  if (f.sha256) {
    rows.push(row('SHA-256', h('button', { type: 'button', class: 'digest', title: 'Copy the digest', onclick: () => copy(f.sha256, 'The digest is copied') }, f.sha256)));
  }
  if (cell.note) rows.push(row('Note', cell.note));
  return h('dl', { class: 'list' }, rows);
}

// verdict words what a replay found.
function verdict(r) {
  const lines = [];
  if (r.verdict === 'identical') lines.push(`Every byte is the same: ${bytes(r.original.size)}.`);
  if (r.verdict === 'missing') lines.push('The command did not make the file again.');
  if (r.first_byte !== undefined) lines.push(`Bytes differ from ${r.first_byte} on.`);
  if (r.first_frame !== undefined) {
    lines.push(`Frame ${r.first_frame} is the first that differs${r.psnr !== undefined ? `: ${r.psnr.toFixed(1)} dB PSNR` : ''}, of ${r.frames} compared.`);
  } else if (r.frames && r.verdict === 'differs') lines.push(`All ${r.frames} pictures are the same.`);
  if (r.reason) lines.push(r.reason);
  if (!r.same_image) lines.push('It ran on another image than the first time.');
  const title = { identical: 'Identical', differs: 'It differs', missing: 'Not made again' }[r.verdict];
  return [h('strong', {}, title), ...lines.map((l) => h('p', {}, l)), h('p', { class: 'dim' }, `in ${r.seconds.toFixed(1)} s`)];
}

function replayButton(result) {
  const asked = cell;
  const button = h('button', {
    type: 'button', id: 'replay',
    onclick: async () => {
      button.disabled = true;
      result.className = 'verdict waiting';
      result.replaceChildren('Running the command again in a fresh sandbox…');
      try {
        const r = await post(cellPath(asked, 'replay'));
        result.className = `verdict ${r.verdict}`;
        result.replaceChildren(...verdict(r));
      } catch (err) {
        result.className = 'verdict missing';
        result.replaceChildren(h('strong', {}, 'No replay'), h('p', {}, err.message), err.hint ? h('p', { class: 'dim' }, err.hint) : '');
      }
      button.disabled = false;
    },
  }, icon('again'), 'Replay');
  return button;
}

function actions(result) {
  const stored = cell.state === 'published';
  return h('div', { class: 'actions' },
    stored ? h('a', { class: 'button primary', href: contentLink(cell), download: cell.file.file_name, id: 'download' }, icon('down'), 'Download') : '',
    h('button', { type: 'button', id: 'copy', onclick: () => copy(`#${cell.ordinal}`) }, icon('copy'), `Copy #${cell.ordinal}`),
    stored ? replayButton(result) : '');
}

function step(by) {
  const order = shown();
  const i = order.findIndex((c) => c.ordinal === cell.ordinal);
  const next = order[i + by];
  if (next) location.replace(`#/${of(next.chat, next.ordinal)}`);
}

async function fill(asked, box) {
  try {
    const made = await get(cellPath(asked, 'provenance'));
    if (asked !== cell) return;
    box.replaceChildren(...provenanceView(asked, made));
    controls?.inputs?.(made);
  } catch (err) {
    if (asked === cell) box.replaceChildren(h('p', { class: 'dim' }, err.message));
  }
}

function draw() {
  const box = $('viewer');
  const order = shown();
  const i = order.findIndex((c) => c.ordinal === cell.ordinal);
  const nav = (by, name, glyph) => h('button', {
    type: 'button', class: 'round', 'aria-label': name, disabled: !order[i + by], onclick: () => step(by),
  }, icon(glyph));
  const result = h('div', { class: 'verdict', role: 'status', 'aria-live': 'polite' });
  const made = h('section', { class: 'made', 'aria-label': 'Provenance' });
  controls?.stop?.();
  controls = stage(cell);
  box.replaceChildren(
    h('div', { class: 'head' },
      h('h2', { id: 'viewer-title' }, h('span', { class: 'ordinal' }, `#${cell.ordinal}`), ' ', cell.file.file_name),
      controls.tools ?? '',
      nav(-1, 'Newer cell', 'left'), nav(1, 'Older cell', 'right'),
      h('button', { type: 'button', class: 'round', 'aria-label': 'Close', id: 'close', onclick: () => box.close() }, icon('close'))),
    h('div', { class: 'body' }, controls.el,
      h('aside', { tabIndex: 0, 'aria-label': 'About this cell' }, actions(result), result, factList(), made)));
  drawn = version(cell);
  fill(cell, made);
}

export function showCell(next) {
  const box = $('viewer');
  cell = next;
  if (!box.open) {
    opener = document.activeElement;
    box.showModal();
  }
  draw();
  $('close').focus();
}

export function closeViewer() { if ($('viewer').open) $('viewer').close(); }

// refreshViewer draws again when the cell that is shown has changed.
export function refreshViewer() {
  if (!cell || !$('viewer').open) return;
  const now = state.cells.get(cell.ordinal);
  if (!now) {
    toast(`#${cell.ordinal} has been removed`);
    closeViewer();
  } else if (now.chat === cell.chat && version(now) !== drawn) {
    cell = now;
    draw();
  }
}

$('viewer').addEventListener('close', () => {
  if ($('viewer').open || !cell) return; // it was opened again meanwhile
  controls?.stop?.();
  controls = undefined;
  const chat = cell.chat;
  const ordinal = cell.ordinal;
  cell = undefined;
  $('viewer').replaceChildren();
  // Another cell may have been asked for since.
  if (location.hash === `#/${of(chat, ordinal)}`) history.replaceState(null, '', home(chat));
  const link = document.querySelector(`[data-ordinal="${ordinal}"] a`);
  (opener?.isConnected && opener !== document.body ? opener : link)?.focus({ preventScroll: true });
});

$('viewer').addEventListener('keydown', (e) => {
  if (e.target.closest('input, video, audio, select, [data-keys]')) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
  if (by) {
    e.preventDefault();
    step(by);
  }
});
