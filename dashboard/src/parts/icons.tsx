// Icons that fonts may not have.
export function CopyIcon() {
  return (
    <svg class="glyph" width="14" height="14" viewBox="0 0 16 16" aria-hidden="true">
      <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" />
      <path d="M10.5 3.5v-.5a1.5 1.5 0 0 0-1.5-1.5H4A1.5 1.5 0 0 0 2.5 3v5A1.5 1.5 0 0 0 4 9.5h.5" />
    </svg>
  );
}

export function PencilIcon() {
  return (
    <svg class="glyph pencil" width="12" height="12" viewBox="0 0 16 16" aria-hidden="true">
      <path d="M2.5 13.5l.6-3 8-8a1.4 1.4 0 0 1 2 0l.4.4a1.4 1.4 0 0 1 0 2l-8 8z" />
    </svg>
  );
}

export function SaveIcon() {
  return (
    <svg class="glyph" width="14" height="14" viewBox="0 0 16 16" aria-hidden="true">
      <path d="M8 2v8M4.5 7L8 10.5 11.5 7M2.5 13.5h11" />
    </svg>
  );
}

export function PersonIcon() {
  return (
    <svg class="glyph" width="15" height="15" viewBox="0 0 16 16" aria-hidden="true">
      <circle cx="8" cy="5" r="2.8" />
      <path d="M2.8 14c.4-2.9 2.5-4.4 5.2-4.4s4.8 1.5 5.2 4.4" />
    </svg>
  );
}
