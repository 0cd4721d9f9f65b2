// The stage shows a cell's content: a picture that can be zoomed and compared, a
// video over its strip, a sound over its waveform, text as text.
import { cellPath, contentLink, head, previewLink } from './api.js';
import { bytes, clock, h, icon } from './dom.js';
import { imageStage } from './image.js';

const maxText = 65536;

// stage returns {el, tools?, inputs?(provenance), stop?}.
export function stage(cell) {
  if (cell.state !== 'published') {
    return { el: h('div', { class: 'stage' }, h('p', { class: 'note' }, cell.state === 'lost' ? 'The file could not be kept.' : 'The file is being stored…')) };
  }
  const kind = cell.file.content_type.split('/')[0];
  if (kind === 'image') return imageStage(cell);
  if (kind === 'video') return mediaStage(cell, 'video', 'strip');
  if (kind === 'audio') return mediaStage(cell, 'audio', 'wave');
  if (kind === 'text' || /json|xml|javascript|yaml|subrip/.test(cell.file.content_type)) return textStage(cell);
  return { el: h('div', { class: 'stage' }, h('p', { class: 'note' }, icon('file'), `${cell.file.content_type}, ${bytes(cell.file.file_size)}. Download it to open it.`)) };
}

function textStage(cell) {
  const text = h('pre', { class: 'text', tabIndex: 0, 'aria-label': `Content of ${cell.file.file_name}`, 'data-keys': '' });
  const el = h('div', { class: 'stage flat' }, text);
  head(cellPath(cell, 'content'), maxText).then((t) => {
    text.textContent = t;
    if (cell.file.file_size > maxText) el.append(h('p', { class: 'note' }, `The first ${bytes(maxText)} of ${bytes(cell.file.file_size)}.`));
  }, (err) => { text.textContent = err.message; });
  return { el };
}

// mediaStage plays; below it a picture of the whole length seeks.
function mediaStage(cell, tag, kind) {
  const media = h(tag, { src: contentLink(cell), controls: true, preload: 'metadata', 'aria-label': cell.file.file_name });
  if (tag === 'video') {
    media.playsInline = true;
    if (cell.previews?.includes('thumb')) media.poster = previewLink(cell, 'thumb');
  }
  const fault = h('p', { class: 'note', role: 'status' });
  media.addEventListener('error', () => { fault.textContent = 'This browser can’t play it. Download it to open it elsewhere.'; });
  const el = h('div', { class: `stage ${tag}` }, h('div', { class: 'screen' }, media), fault);
  if (cell.previews?.includes(kind)) el.append(seekBar(cell, media, kind));
  return { el, stop: () => media.pause() };
}

function seekBar(cell, media, kind) {
  const length = () => (Number.isFinite(media.duration) ? media.duration : cell.file.duration || 1);
  const range = h('input', {
    type: 'range', min: 0, max: 1000, step: 1, value: 0, 'aria-label': 'Position',
    oninput: () => { media.currentTime = range.value / 1000 * length(); },
  });
  const picture = kind === 'strip' ? h('img', { src: previewLink(cell, 'strip'), alt: '', draggable: false }) : h('span', { class: 'wave' });
  const bar = h('div', { class: `seek ${kind}` }, picture, h('span', { class: 'head' }), range);
  if (kind === 'wave') picture.style.setProperty('--wave', `url("${previewLink(cell, 'wave')}")`);
  let running = false;
  const draw = () => {
    const part = media.currentTime / length();
    bar.style.setProperty('--at', `${100 * part}%`);
    range.value = 1000 * part;
    range.setAttribute('aria-valuetext', `${clock(media.currentTime)} of ${clock(length())}`);
    if (running && bar.isConnected) requestAnimationFrame(draw);
  };
  media.addEventListener('play', () => { running = true; draw(); });
  media.addEventListener('pause', () => { running = false; });
  ['timeupdate', 'seeked', 'loadedmetadata'].forEach((name) => media.addEventListener(name, () => { if (!running) draw(); }));
  return bar;
}
