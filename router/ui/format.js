// Numbers as people read them.

const UNITS = ["B", "KB", "MB", "GB", "TB"];

export function bytes(count) {
  let value = Number(count) || 0;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function seconds(count) {
  const value = Math.max(0, Number(count) || 0);
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 90) return `${value.toFixed(0)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export const percent = (share) => `${Math.round(Math.min(1, Math.max(0, Number(share) || 0)) * 100)} %`;

export function count(value) {
  return new Intl.NumberFormat("en").format(Number(value) || 0);
}

/** Clock time of a unix time in seconds, or of now. */
export function clock(unix) {
  const date = unix ? new Date(unix * 1000) : new Date();
  return date.toLocaleTimeString(undefined, { hour12: false });
}

/** `3 models`, `1 model`. */
export const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
