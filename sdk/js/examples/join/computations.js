// What sheafd --join gives to tabs: the mean of the numbers in a file that a person chooses.
export const about = {
  title: "The mean of your numbers",
  text: "Adds the numbers in a file of yours to a mean over many people's. Only their mean and how many they are leaves this tab.",
  file: {label: "A text file of numbers", accept: ".txt,.csv"},
};

export function prepare({bytes, sheaf}) {
  const numbers = new TextDecoder().decode(bytes).split(/[\s,]+/).filter((word) => word !== "").map(Number);

  const file_mean = () => {
    if (numbers.length === 0) throw new sheaf.Declined("an empty file");
    const sum = numbers.reduce((all, each) => all + each, 0);
    return new sheaf.Update({mean: sum / numbers.length}, {weight: numbers.length});
  };

  return {computations: {file_mean}, summary: `${numbers.length} numbers`};
}
