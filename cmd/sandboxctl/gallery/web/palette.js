// The palette: finds a cell by its name, label, kind, type or #ordinal.
import { of, previewLink } from './api.js';
import { $, bytes, facts, h, icon, pillNames } from './dom.js';
import { state } from './store.js';

const most = 50;
let found = [];
let at = 0;

function matches(cell, words) {
  const text = [cell.file.file_name, cell.file.path, cell.label, cell.file.content_type, pillNames[cell.pill], cell.pill, `#${cell.ordinal}`]
    .join(' ').toLowerCase();
  return words.every((w) => text.includes(w));
}

function option(cell, i) {
  const picture = cell.previews?.includes('thumb') ? h('img', { src: previewLink(cell, 'thumb'), alt: '' }) : icon(cell.pill);
  return h('li', {
    role: 'option', id: `found-${i}`, 'aria-selected': String(i === at),
    onpointermove: () => select(i), onclick: () => { select(i); open(); },
  }, h('span', { class: 'tiny' }, picture), h('span', { class: 'ordinal' }, `#${cell.ordinal}`), h('span', { class: 'file' }, cell.file.file_name),
  h('span', { class: 'facts' }, [pillNames[cell.pill], ...facts(cell.file), bytes(cell.file.file_size)].join(' · ')));
}

function select(i) {
  if (!found.length) return;
  at = (i + found.length) % found.length;
  const list = $('found');
  [...list.children].forEach((el, n) => el.setAttribute('aria-selected', String(n === at)));
  list.children[at].scrollIntoView({ block: 'nearest' });
  $('query').setAttribute('aria-activedescendant', `found-${at}`);
}

function search() {
  const words = $('query').value.toLowerCase().replace(/^\//, '').split(/\s+/).filter(Boolean);
  found = [...state.cells.values()].filter((c) => matches(c, words)).sort((a, b) => b.ordinal - a.ordinal).slice(0, most);
  at = 0;
  $('found').replaceChildren(...found.map(option));
  $('found').hidden = !found.length;
  $('none').textContent = found.length ? '' : 'No cell matches.';
  $('query').setAttribute('aria-expanded', String(found.length > 0));
  if (found.length) select(0); else $('query').removeAttribute('aria-activedescendant');
}

function open() {
  const cell = found[at];
  $('palette').close();
  if (cell) location.hash = `#/${of(cell.chat, cell.ordinal)}`;
}

function onKey(e) {
  const move = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  if (move) {
    e.preventDefault();
    select(at + move);
  } else if (e.key === 'Enter') {
    e.preventDefault();
    open();
  }
}

export function openPalette() {
  const box = $('palette');
  if (box.open) return;
  if (!box.firstChild) {
    box.append(
      h('input', {
        id: 'query', type: 'text', role: 'combobox', 'aria-label': 'Search cells', 'aria-controls': 'found', 'aria-expanded': 'false',
        'aria-autocomplete': 'list', autocomplete: 'off', spellcheck: false, placeholder: 'Name, kind, label or #number', oninput: search, onkeydown: onKey,
      }),
      h('ul', { id: 'found', role: 'listbox', 'aria-label': 'Cells found' }),
      h('p', { id: 'none', role: 'status' }),
      h('p', { class: 'keys', 'aria-hidden': 'true' }, h('kbd', {}, '↑'), h('kbd', {}, '↓'), ' choose ', h('kbd', {}, '↵'), ' open ', h('kbd', {}, 'esc'), ' close'));
    box.addEventListener('click', (e) => { if (e.target === box) box.close(); });
  }
  $('query').value = '';
  box.showModal();
  search();
  $('query').focus();
}
