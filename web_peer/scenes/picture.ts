/* A made-up picture for scenes: a boat on a lake in the evening. */

const BOAT = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 320 220" width="640" height="440">
<defs><linearGradient id="sky" x2="0" y2="1"><stop stop-color="#35507a"/><stop offset=".6" stop-color="#e08d6d"/>
<stop offset="1" stop-color="#f7d59b"/></linearGradient></defs>
<rect width="320" height="140" fill="url(#sky)"/><circle cx="226" cy="118" r="20" fill="#fff2c8"/>
<path d="M0 132l52-44 40 34 46-58 66 64 40-26 76 40v20H0z" fill="#2f3d57"/>
<rect y="138" width="320" height="82" fill="#4d6a86"/>
<path d="M196 144h60M188 154h76M200 166h52M192 180h68" stroke="#f7d59b" stroke-width="3" opacity=".7"/>
<path d="M74 176h92l-14 20H88z" fill="#7a3d2c"/><path d="M118 172V84l44 84z" fill="#fbf6ea"/>
<path d="M112 172V100l-32 68z" fill="#efe3cb"/><path d="M115 80v98" stroke="#5b3a25" stroke-width="3"/></svg>`;

/** Its address. */
export const BOAT_URL = `data:image/svg+xml,${encodeURIComponent(BOAT)}`;
