// Elements, icons and the wording of numbers. Text of others goes into text
// nodes and attributes only: nothing here makes markup of a string.

// h makes an element. Properties that begin with "on" are listeners; "class" and
// what has a hyphen or is no property are attributes.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (name in el && !name.includes('-') && name !== 'list') el[name] = value;
    else el.setAttribute(name, value === true ? '' : value);
  }
  el.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
  return el;
}

const SVG = 'http://www.w3.org/2000/svg';
const paths = {
  'video-edit': 'M3 5h10v10H3zM13 9l4-2.5v7L13 11',
  'frame-extract': 'M3 4h14v12H3zM6 4v12M14 4v12M3 8h3M3 12h3M14 8h3M14 12h3',
  'image-edit': 'M3 4h14v12H3zM3 13l4-4 4 4 2-2 4 4M13 7.5h.01',
  'audio-edit': 'M3 9v2M6 6v8M9 3.5v13M12 7v6M15 5v10M18 9v2',
  file: 'M5 2.5h6l4 4v11H5zM11 2.5v4h4',
  copy: 'M7 7h9v9H7zM4 13V4h9',
  down: 'M10 3v10M6 9.5l4 4 4-4M4 17h12',
  close: 'M5 5l10 10M15 5L5 15',
  left: 'M12 4l-6 6 6 6',
  right: 'M8 4l6 6-6 6',
  plus: 'M10 4v12M4 10h12',
  minus: 'M4 10h12',
  fit: 'M4 8V4h4M12 4h4v4M16 12v4h-4M8 16H4v-4',
  split: 'M10 3v14M3 5h4v10H3zM13 5h4v10h-4z',
  again: 'M15.5 7A6.5 6.5 0 1 0 16.5 11M16 3v4h-4',
  play: 'M6 4l10 6-10 6z',
};

export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 20 20');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', paths[name] ?? paths.file);
  svg.append(path);
  return svg;
}

export const $ = (id) => document.getElementById(id);

export const pillNames = {
  'video-edit': 'Video', 'frame-extract': 'Frame', 'image-edit': 'Image', 'audio-edit': 'Audio', file: 'File',
};

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let i = -1;
  do { n /= 1024; i++; } while (n >= 1024 && i < units.length - 1);
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

// clock words seconds as m:ss.
export function clock(s) {
  s = Math.max(0, Math.round(s));
  const m = Math.floor(s / 60);
  if (m >= 60) return `${Math.floor(m / 60)}:${String(m % 60).padStart(2, '0')}:${String(s % 60).padStart(2, '0')}`;
  return `${m}:${String(s % 60).padStart(2, '0')}`;
}

export function facts(file) {
  const out = [];
  if (file.width) out.push(`${file.width}×${file.height}`);
  if (file.duration) out.push(file.duration < 60 ? `${file.duration.toFixed(1)} s` : clock(file.duration));
  return out;
}

// sentence is how a program's state reads.
export const sentence = (state) => state.replace('_', ' ');

// what says in one line what a command runs.
export function what(cmd) {
  if (cmd.argv) return cmd.argv.join(' ');
  if (cmd.shell) return cmd.shell;
  const line = (cmd.python ?? '').split('\n').find((l) => l.trim() && !/^\s*(#|import |from )/.test(l));
  return `${cmd.script || 'python'}: ${(line ?? '').trim()}`;
}

let fading;
export function toast(text) {
  const el = $('toast');
  el.textContent = text;
  el.classList.add('shown');
  clearTimeout(fading);
  fading = setTimeout(() => el.classList.remove('shown'), 3500);
}

export function announce(text) { $('live').textContent = text; }

export async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    toast(said ?? `${text} is copied`);
  } catch {
    toast(`Copy it by hand: ${text}`);
  }
}
