// Shows the rows of the table of systems that fit the words, the class and the paper.
const form = document.querySelector("form.filter");
if (form) {
  const [words, kind, paper] = form.querySelectorAll("input, select");
  const rows = [...document.querySelectorAll("table.systems tbody tr")];
  const sift = () => {
    const sought = words.value.toLowerCase();
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(sought)
        || (kind.value && row.dataset.class !== kind.value)
        || (paper.value && row.dataset.paper !== paper.value);
    }
    form.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };
  form.hidden = false;
  form.addEventListener("input", sift);
  sift();
}
