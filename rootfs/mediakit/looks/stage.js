// What all looks share: parameters, sizes, text that fits, the timeline.
const P = JSON.parse(document.getElementById("parameters").textContent);
const u = Math.min(P.width, P.height) / 100;
const $ = (id) => document.getElementById(id);
const root = document.documentElement.style;
root.setProperty("--u", u + "px");
for (const [name, value] of Object.entries(P.colours)) root.setProperty("--" + name, value);
document.body.classList.add(P.width > P.height * 1.2 ? "wide" : P.height > P.width * 1.2 ? "tall" : "square");

// put sets text; an element without text takes no room.
function put(id, text) {
  $(id).textContent = text || "";
  speak($(id), text);
  if (!text) $(id).style.display = "none";
}

// speak sets direction, and the language where letters tell it: Chinese and
// Japanese share characters that are drawn differently.
function speak(e, text) {
  e.dir = "auto";
  if (/[\u3040-\u30ff]/.test(text)) e.lang = "ja";
  else if (/[\uac00-\ud7af]/.test(text)) e.lang = "ko";
}

// fit makes text as large as its box allows, between two sizes in units of u.
function fit(id, most, least, height) {
  const e = $(id);
  const set = (size) => { e.style.fontSize = Math.round(size * u) + "px"; };
  const fits = () => e.scrollWidth <= e.clientWidth + 1 && e.scrollHeight <= height * u + 1;
  for (let size = most; size >= least; size *= 0.96) {
    set(size);
    if (fits()) return;
  }
  e.style.overflowWrap = "anywhere";
  set(least);
  if (!fits()) throw new Error("the text of " + id + " is too long: shorten it");
}

const line = anime.createTimeline({ autoplay: false });
const add = line.add.bind(line);
// What moves or fades gets a layer of its own for good. Otherwise the browser
// makes and drops layers by its own clock, and whether a faint text is blended
// with its layer or letter by letter shows in the last bit of its pixels.
line.add = (what, ...rest) => {
  const moved = typeof what === "string" ? document.querySelectorAll(what) : [what];
  for (const e of moved) if (e instanceof Element) e.style.willChange = "transform, opacity";
  add(what, ...rest);
  return line;
};
const D = P.duration * 1000;
function show(name) {
  window.__timelines = { [name]: { duration: () => P.duration, seek: (t) => line.seek(t * 1000), time: () => line.currentTime / 1000, play() {}, pause() {} } };
}
